"""Measure what a client of the server notices while another one sends forty sizes at once.

    python -m benchmarks.random_sizes.burst [--networks mobilenet_v2 ...] [--bursts 6] [--save NAME]

The server has one core, the clients have another. The first client asks for one size of a network of its own every
10 ms. Its p99 is taken alone, while forty connections each send a size that the server has not met, and while they
send these sizes again: the difference between the two is what new sizes cost, the rest is sharing a core.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.files import default_folder
from benchmarks.machine import describe
from benchmarks.random_sizes.costs import BURST, NEIGHBOUR
from benchmarks.random_sizes.networks import OPEN_NETWORKS, OpenNetwork, export_missing
from benchmarks.raw import Result
from benchmarks.report import table
from benchmarks.serving.__main__ import Peer, ask, connect, running, settle

CORES: Final = sorted(os.sched_getaffinity(0))
"""The clients have the first core, the server has the last."""
PORT: Final = 18803
SEED: Final = 11
EVERY_S: Final = 0.01
ALONE_S: Final = 1.5
KINDS: Final = ("alone", "new", "known")
TITLES: Final = [
    "network", "alone p99 (ms)", "beside new sizes", "beside known sizes", "new ÷ alone", "new ÷ known",
    "forty new (ms)", "forty known (ms)",
]  # fmt: skip


def message(name: str, network: OpenNetwork, shape: Sequence[int]) -> bytes:
    """Return a request of the Open Inference Protocol with a binary tensor."""
    x = network.input_of(shape)
    datatype = "INT64" if network.network.vocabulary else "FP32"
    tensor = {
        "name": "input", "shape": list(shape), "datatype": datatype, "parameters": {"binary_data_size": x.nbytes},
    }  # fmt: skip
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    lines = [
        f"POST /v2/models/{name}/infer HTTP/1.1", "Host: server", f"Content-Length: {len(head) + x.nbytes}",
        f"Inference-Header-Content-Length: {len(head)}", "\r\n",
    ]  # fmt: skip
    return "\r\n".join(lines).encode() + head + x.tobytes()


def waits_ms(port: int, request: bytes, beside: Callable[[], float]) -> tuple[list[float], float]:
    """Return the first client's waits while something else runs, and the result of that."""
    end, found = threading.Event(), list[float]()

    def client() -> None:
        connection = connect(port)
        while not end.wait(EVERY_S):
            start = time.perf_counter()
            _answered(ask(connection, request))
            found.append(1e3 * (time.perf_counter() - start))

    thread = threading.Thread(target=client)
    thread.start()
    result = beside()
    end.set()
    thread.join()
    return found, result


def send_at_once(port: int, requests: Sequence[bytes]) -> float:
    """Send each request on a connection of its own, and return the milliseconds until all are answered."""
    connections = [connect(port) for _ in requests]
    start = time.perf_counter()
    for connection, request in zip(connections, requests, strict=True):
        connection.sendall(request)
    for connection in connections:
        _answered(ask(connection, b""))
        connection.close()
    return 1e3 * (time.perf_counter() - start)


def _answered(reply: tuple[int, bytes]) -> None:
    if reply[0] != 200:
        raise SystemExit(f"{reply[0]} {reply[1][:300]!r}")


def measure(name: str, folder: Path, bursts: int) -> dict[str, Any]:
    """Return the waits of the first client, and the times of the bursts, for one network."""
    network, neighbour = OPEN_NETWORKS[name], OPEN_NETWORKS[NEIGHBOUR]
    random = np.random.default_rng(SEED)
    drawn = dict.fromkeys(network.draw_shape(random) for _ in range(100 * bursts * BURST))
    shapes = list(drawn)[: bursts * BURST]
    request = message("neighbour", neighbour, neighbour.network.shape)
    waits: dict[str, list[float]] = {kind: [] for kind in KINDS}
    burst_ms: dict[str, list[float]] = {"new": [], "known": []}
    with tempfile.TemporaryDirectory() as store, tempfile.TemporaryDirectory() as cache:
        for model, source in (("neighbour", NEIGHBOUR), ("varying", name)):
            version = Path(store) / model / "1"
            version.mkdir(parents=True)
            shutil.copy(folder / source / "model.onnx", version)
        serve = [sys.executable, "-m", "app", "serve", "--store", store, "--port", str(PORT), "--max-wait-s", "30"]
        with running(serve, PORT, CORES[-1], XDG_CACHE_HOME=cache) as peer:
            _measure(peer, request, [message("varying", network, each) for each in shapes], waits, burst_ms)
    return {"network": name, "sizes": len(shapes), "waits_ms": waits, "burst_ms": burst_ms}


def _measure(
    peer: Peer, request: bytes, others: Sequence[bytes], waits: dict[str, list[float]], burst_ms: dict[str, list[float]]
) -> None:
    settle(peer)
    for _ in range(50):
        _answered(ask(connect(peer.port), request))
    for start in range(0, len(others), BURST):
        burst = others[start : start + BURST]
        waits["alone"] += waits_ms(peer.port, request, _rest)[0]
        for kind, times in burst_ms.items():
            found, taken = waits_ms(peer.port, request, partial(send_at_once, peer.port, burst))
            waits[kind] += found
            times.append(taken)


def _rest() -> float:
    time.sleep(ALONE_S)
    return ALONE_S


def report(rows: Sequence[dict[str, Any]]) -> str:
    """Return the table of all networks."""
    cells = []
    for row in rows:
        p99 = {kind: float(np.quantile(row["waits_ms"][kind], 0.99)) for kind in KINDS}
        bursts = [f"{np.median(times):.0f}" for times in row["burst_ms"].values()]
        ratios = [f"{p99['new'] / p99[kind]:.2f}" for kind in ("alone", "known")]
        cells.append([row["network"], *(f"{each:.2f}" for each in p99.values()), *ratios, *bursts])
    return table(TITLES, cells)


def main() -> int:
    """Export what is missing, measure, print, and save where asked."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", nargs="+", default=list(OPEN_NETWORKS), choices=list(OPEN_NETWORKS))
    parser.add_argument("--bursts", type=int, default=6)
    parser.add_argument("--folder", type=Path, default=default_folder() / "random_sizes")
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/raw/NAME.json")
    options = parser.parse_args()
    export_missing([*options.networks, NEIGHBOUR], options.folder)
    os.sched_setaffinity(0, CORES[:1])
    rows = []
    for name in options.networks:
        rows.append(measure(name, options.folder, options.bursts))
        print(f"{name}: measured", file=sys.stderr, flush=True)
    how = f"a server with one core; {options.bursts} bursts of {BURST} sizes beside {NEIGHBOUR}"
    result = Result(kind="random_size_bursts", machine=describe(()), how=how, body=report(rows), records=rows)
    result.publish(options.save)
    return 0


if __name__ == "__main__":
    sys.exit(main())
