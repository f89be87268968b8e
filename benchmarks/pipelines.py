"""Compare a pipeline of three steps with a client that sends three requests, and one of PP-OCR with RapidOCR.

python -m benchmarks.pipelines                                  # requests a second, in turns, on one server
python -m benchmarks.pipelines --ocr STORE --pictures FILE ...  # needs rapidocr; see examples/rapidocr.py
"""

from __future__ import annotations

import argparse
import io
import json
import math
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

from PIL import Image

from app.measuring.contest import wait_until_idle

ROOT: Final = Path(__file__).parent.parent
PICTURE: Final = ROOT / "model_store/shapes/examples/shapes-c.png"
STEPS: Final = """
[[step]]
name = "find"
model = "shapes"
input = "picture"

[[step]]
name = "first"
model = "digits"
crop = "find.box"

[[step]]
name = "second"
model = "digits"
crop = "find.box"
"""
_PNG: Final = {"content-type": "image/png"}
_FORM: Final = {"content-type": "multipart/form-data; boundary=part"}
ROUNDS: Final = 5
WARM: Final = 6


def post(connection: HTTPConnection, path: str, body: bytes, headers: dict[str, str]) -> Any:
    """Return the parsed answer to a request."""
    connection.request("POST", path, body, headers)
    response = connection.getresponse()
    answer = json.loads(response.read())
    assert response.status == 200, answer
    return answer


def by_pipeline(connection: HTTPConnection, picture: bytes) -> Any:
    """Return the predictions of one request."""
    return post(connection, "/models/three/infer", picture, _PNG)["predictions"]["find"]


def by_client(connection: HTTPConnection, picture: bytes) -> Any:
    """Return the same from three requests, with crops made by the client, all of a step in one request."""
    found = post(connection, "/models/shapes/infer", picture, _PNG)["predictions"]
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    form = b"".join(_part(image, row["box"]) for row in found) + b"--part--\r\n"
    for name in ("first", "second"):
        classes = post(connection, "/models/digits/infer", form, _FORM)["predictions"] if found else []
        for row, each in zip(found, classes if len(found) > 1 else [classes], strict=True):
            row[name] = each
    return found


def _part(image: Image.Image, box: list[float]) -> bytes:
    out = io.BytesIO()
    image.crop((*map(math.floor, box[:2]), *map(math.ceil, box[2:]))).save(out, "PNG", compress_level=1)
    head = b'--part\r\ncontent-disposition: form-data; name="file"; filename="a.png"\r\ncontent-type: image/png\r\n\r\n'
    return head + out.getvalue() + b"\r\n"


def rate(
    port: int, work: Callable[[HTTPConnection, bytes], Any], picture: bytes, clients: int, seconds: float
) -> float:
    """Return the answered pictures a second of so many clients that each wait for their answer."""
    counts = [0] * clients
    end = time.perf_counter() + seconds

    def ask(at: int) -> None:
        connection = HTTPConnection("127.0.0.1", port)
        while time.perf_counter() < end:
            work(connection, picture)
            counts[at] += 1
        connection.close()

    threads = [threading.Thread(target=ask, args=(at,)) for at in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / seconds


@contextmanager
def served(store: Path, python: str) -> Iterator[int]:
    """Serve a store in a process of its own, and return its port."""
    command = [python, "-m", "app", "serve", "--store", str(store), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as server:
        assert server.stdout is not None
        try:
            for line in server.stdout:
                if found := re.search(r"console +http://[^:]+:(\d+)/", line):
                    yield int(found[1])
                    return
            raise SystemExit("the server did not start")
        finally:
            server.terminate()


def compare_requests(picture: bytes, seconds: float, python: str) -> None:
    """Print requests a second of both ways in turns."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder)
        for name in ("shapes", "digits"):
            shutil.copytree(ROOT / "model_store" / name, store / name)
        (store / "three").mkdir()
        (store / "three/pipeline.toml").write_text(STEPS)
        with served(store, python) as port:
            for clients in (1, 4):
                ways = (by_pipeline, by_client)
                for way in ways:
                    rate(port, way, picture, clients, seconds)
                rows = [[rate(port, way, picture, clients, seconds) for way in ways] for _ in range(ROUNDS)]
                ratios = [one / other for one, other in rows]
                one, other = (statistics.median(row[at] for row in rows) for at in range(2))
                print(
                    f"{clients} clients: pipeline {one:.0f}/s, three requests {other:.0f}/s,"
                    f" ratio {statistics.median(ratios):.2f} (least {min(ratios):.2f})",
                    flush=True,
                )


def compare_ocr(store: Path, pictures: Sequence[Path], python: str) -> None:
    """Print the time of each picture in RapidOCR in this process, and in one request, in turns.

    A request waits until the threads of RapidOCR sleep, which would otherwise take cores from the server.
    """
    from rapidocr import RapidOCR

    engine, ratios = RapidOCR(), []
    with served(store, python) as port:
        connection = HTTPConnection("127.0.0.1", port)
        for picture in pictures:
            content, times = picture.read_bytes(), list[tuple[float, float]]()
            kind = {"content-type": f"image/{'png' if picture.suffix == '.png' else 'jpeg'}"}
            for _ in range(WARM + ROUNDS):  # code for new sizes is compiled beside the first requests
                start = time.perf_counter()
                engine(str(picture))
                own_s = time.perf_counter() - start
                wait_until_idle()
                start = time.perf_counter()
                post(connection, "/models/ocr/infer", content, kind)
                times.append((own_s, time.perf_counter() - start))
            own, served_s = (statistics.median(row[at] for row in times[WARM:]) for at in range(2))
            ratios.append(own / served_s)
            print(
                f"{picture.name}: RapidOCR {1e3 * own:.0f} ms, one request {1e3 * served_s:.0f} ms,"
                f" ratio {ratios[-1]:.2f}",
                flush=True,
            )
    print(f"ratio: median {statistics.median(ratios):.2f}, least {min(ratios):.2f}")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--ocr", type=Path, metavar="STORE", help="store that examples/rapidocr.py has written")
    parser.add_argument(
        "--pictures", type=Path, nargs="*", default=[], help="pictures with text; without --ocr one picture to send"
    )
    parser.add_argument("--python", default=sys.executable, help="Python of the server")
    args = parser.parse_args()
    if args.ocr is not None:
        compare_ocr(args.ocr, args.pictures, args.python)
    else:
        picture = args.pictures[0] if args.pictures else PICTURE
        compare_requests(picture.read_bytes(), args.seconds, args.python)


if __name__ == "__main__":
    main()
