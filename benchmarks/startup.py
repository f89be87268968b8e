"""Measure a server's start: from its command to live, to ready, and the first answer of a model.

    python -m benchmarks.startup [--store model_store] [--rounds 5] [--model digits --body FILE] [--save NAME]

Each round starts a server with an empty compile cache (cold), and another with the cache that it left (warm). Wall time
is what an operator waits. Processor time, of all threads until the server was ready, is the time on one idle core.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from benchmarks.engine_processes import installed
from benchmarks.machine import ROOT, describe
from benchmarks.raw import Result
from benchmarks.report import table

_PATIENCE_S = 600.0
_LOOK_S = 0.005
_PORT = 18811


@dataclass(frozen=True, kw_only=True)
class Start:
    """Times of one start, in milliseconds since the command.

    Args:
        cpu: processor time of the process until it was ready.
        answer: of the first request to a model, from sending it on.
    """

    live: float
    ready: float
    cpu: float
    answer: float


def start(store: Path, cache: Path, model: str, body: bytes, content_type: str) -> Start:
    """Start a server, wait, send a request, end it."""
    command = [sys.executable, "-m", "app", "serve", "--store", str(store), "--port", str(_PORT)]
    environ = {**installed(os.environ), "PNNX_SERVE_CACHE_DIR": str(cache)}
    began = time.perf_counter()
    with subprocess.Popen(
        command, cwd=ROOT, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            live = _until(process, "/health/live", began)
            ready = _until(process, "/health/ready", began)
            cpu = _cpu_ms(process.pid)
            asked = time.perf_counter()
            status = _ask("POST", f"/models/{model}/infer", body, {"Content-Type": content_type})
            if status != 200:
                raise SystemExit(f"the first request: {status}")
            return Start(live=live, ready=ready, cpu=cpu, answer=(time.perf_counter() - asked) * 1e3)
        finally:
            process.send_signal(signal.SIGKILL)


def _until(process: subprocess.Popen[bytes], path: str, began: float) -> float:
    while process.poll() is None and time.perf_counter() - began < _PATIENCE_S:
        with suppress(OSError, HTTPException):
            if _ask("GET", path) == 200:
                return (time.perf_counter() - began) * 1e3
        time.sleep(_LOOK_S)
    raise SystemExit(f"{path}: the server did not start")


def _ask(method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> int:
    connection = HTTPConnection("127.0.0.1", _PORT, timeout=_PATIENCE_S)
    try:
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        response.read()
        return response.status
    finally:
        connection.close()


def _cpu_ms(pid: int) -> float:
    found = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(each.read_text().split()[0]) for each in found) / 1e6


def measure(options: argparse.Namespace) -> dict[str, list[Start]]:
    """Measure cold and warm starts in turn."""
    body = Path(options.body).read_bytes()
    found: dict[str, list[Start]] = {"cold": [], "warm": []}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(-1, options.rounds):
            cache = Path(folder) / f"cache{number}"
            for kind in ("cold", "warm"):
                measured = start(Path(options.store).absolute(), cache, options.model, body, options.content_type)
                if number >= 0:  # the first round writes bytecode
                    found[kind].append(measured)
    return found


def report(found: dict[str, list[Start]]) -> str:
    """Return the table."""
    figures = {"live": "live ms", "ready": "ready ms", "cpu": "CPU until ready ms", "answer": "first request ms"}
    rows = []
    for kind, starts in found.items():
        values = [[getattr(each, figure) for each in starts] for figure in figures]
        rows.append([kind, *(f"{statistics.median(each):.0f} / {min(each):.0f}" for each in values)])
    return table(["compile cache", *figures.values()], rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the table, and save it if asked."""
    digits = ROOT / "model_store" / "digits" / "examples"
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.startup", description=(__doc__ or "").splitlines()[0], allow_abbrev=False
    )
    parser.add_argument("--store", default=str(ROOT / "model_store"), help="the models (model_store)")
    parser.add_argument("--rounds", type=int, default=5, help="cold and warm starts (5)")
    parser.add_argument("--model", default="digits", help="model of the first request (digits)")
    parser.add_argument(
        "--body", default=str(next(iter(sorted(digits.glob("*.png"))))), help="file that is sent (a digit)"
    )
    parser.add_argument("--content-type", default="image/png", help="content type of the body (image/png)")
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/raw/NAME.json")
    options = parser.parse_args(argv)
    found = measure(options)
    how = f"{options.rounds} starts of each kind, load {os.getloadavg()[0]:.1f}; median / minimum"
    records = [{"cache": kind, **asdict(each)} for kind, starts in found.items() for each in starts]
    result = Result(kind="startup", machine=describe(()), how=how, body=report(found), records=records)
    result.publish(options.save)
    return 0


if __name__ == "__main__":
    sys.exit(main())
