"""Measure the cost of a request: the server on one core, the client on another.

    python -m benchmarks.serving [--rounds 7] [--requests 300] [--clients 8] [--save NAME]

In each round server and floor take turns for every kind of request. Processor time is that of all threads of the
server; waits are those of a client among this many, each on a kept connection. The floor's answer is as long as the
server's; Pillow's decoding time is added to it for images. The first answers are checked, and the server is left alone
until it is idle.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.machine import ROOT, describe
from benchmarks.raw import Result
from benchmarks.report import table
from benchmarks.serving.cases import Case, cases, write_models

_PATIENCE_S = 60.0
# A server that took less of the processor than this for so long has nothing of its own left to do.
_SETTLED = 0.05
_LOOK_S = 1.0
STORE = ROOT / "model_store"


@dataclass
class Side:
    """Results of the server, or of the floor."""

    cpu_us: list[float] = field(default_factory=list)
    waits_ms: list[float] = field(default_factory=list)


class Peer:
    """Server process on a core of its own."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self.port = port

    def cpu_s(self) -> float:
        """Return the processor time of all its threads."""
        threads = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def settle(peer: Peer) -> None:
    """Wait until a server is idle: ready models are still measured and warmed up."""
    end = time.monotonic() + _PATIENCE_S
    before = float("-inf")
    while time.monotonic() < end and not 0 <= (now := peer.cpu_s()) - before < _SETTLED * _LOOK_S:
        before = now
        time.sleep(_LOOK_S)


@contextmanager
def running(command: Sequence[str], port: int, core: int, **environ: str) -> Iterator[Peer]:
    """Yield a server once it listens."""
    with subprocess.Popen(
        ["taskset", "-c", str(core), *command], cwd=ROOT, env={**os.environ, **environ}, stdout=subprocess.DEVNULL
    ) as process:
        try:
            end = time.monotonic() + _PATIENCE_S
            while not _is_ready(port):
                if process.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"{command[-1]} did not start")
                time.sleep(0.1)
            yield Peer(process, port)
        finally:
            process.send_signal(signal.SIGKILL)


def _is_ready(port: int) -> bool:
    try:
        status, _ = ask(connect(port), b"GET /health/ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    except OSError:
        return False
    return status == 200


def connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def ask(connection: socket.socket, message: bytes) -> tuple[int, bytes]:
    """Send one request and return its answer."""
    connection.sendall(message)
    received = bytearray()
    while b"\r\n\r\n" not in received:
        received += connection.recv(1 << 18) or _gone()
    head, _, body = bytes(received).partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    length = next(int(line[15:]) for line in lines if line.startswith(b"content-length:"))
    pieces, have = [body], len(body)
    while have < length:
        pieces.append(connection.recv(1 << 18) or _gone())
        have += len(pieces[-1])
    return int(lines[0].split()[1]), b"".join(pieces)


def _gone() -> bytes:
    raise ConnectionError("the server closed the connection")


def cost_us(peer: Peer, message: bytes, requests: int) -> float:
    """Return the processor time of one request in microseconds, from this many in sequence."""
    connection = connect(peer.port)
    ask(connection, message)
    before = peer.cpu_s()
    for _ in range(requests):
        ask(connection, message)
    return (peer.cpu_s() - before) / requests * 1e6


def waits_ms(peer: Peer, message: bytes, requests: int, clients: int) -> list[float]:
    """Return the wait of each request in milliseconds, with this many clients at once."""
    found: list[float] = []

    def client() -> None:
        connection = connect(peer.port)
        ask(connection, message)
        own = []
        for _ in range(requests // clients):
            start = time.perf_counter()
            ask(connection, message)
            own.append((time.perf_counter() - start) * 1e3)
        found.extend(own)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def main() -> int:
    """Measure, print the table, and save it if asked."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.serving", description=(__doc__ or "").splitlines()[0], allow_abbrev=False
    )
    parser.add_argument("--rounds", type=int, default=7, help="turns of both (7)")
    parser.add_argument("--requests", type=int, default=300, help="requests of a turn (300)")
    parser.add_argument("--clients", type=int, default=8, help="concurrent clients, for the waits (8)")
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/raw/NAME.json")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:1])
    server_core = cores[-1]
    with tempfile.TemporaryDirectory() as folder:
        write_models(Path(folder), STORE / "digits")
        serve = [sys.executable, "-m", "app", "serve", "--store", folder, "--port", "18801"]
        floor = [sys.executable, "-m", "benchmarks.serving.floor", "18802"]
        with running(serve, 18801, server_core) as ours, running(floor, 18802, server_core) as nothing:
            settle(ours)
            found = {case: measure(case, ours, nothing, options) for case in cases(STORE)}
    how = f"{options.rounds} rounds of {options.requests} requests; waiting with {options.clients} clients"
    records = [{"case": case.name, "ours": asdict(a), "floor": asdict(b)} for case, (a, b) in found.items()]
    result = Result(kind="serving", machine=describe(()), how=how, body=report(found), records=records)
    result.publish(options.save)
    return 0


def measure(case: Case, ours: Peer, floor: Peer, options: argparse.Namespace) -> tuple[Side, Side]:
    """Measure both in turn."""
    message = case.message()
    status, body = ask(connect(ours.port), message)
    if status != 200:
        raise SystemExit(f"{case.name}: {status} {body[:300]!r}")
    answer_bytes = len(body)
    sides = ((ours, message, Side()), (floor, case.message(answer_bytes), Side()))
    for number in range(options.rounds):
        for peer, bytes_, side in sides if number % 2 else sides[::-1]:
            side.cpu_us.append(cost_us(peer, bytes_, options.requests))
            side.waits_ms += waits_ms(peer, bytes_, options.requests, options.clients)
    return sides[0][2], sides[1][2]


def report(found: dict[Case, tuple[Side, Side]]) -> str:
    """Return the table: processor time and waiting of every kind of request."""
    titles = ["request", "ours µs", "floor µs", "decoding µs", "ratio (medians)", "ratio (minima)", "target",
              "p50 ms", "p99 ms", "p99 / p50"]  # fmt: skip
    rows = []
    for case, (ours, floor) in found.items():
        middle, least, decode = statistics.median(ours.cpu_us), min(ours.cpu_us), case.decode_us()
        waits = sorted(ours.waits_ms)
        p50, p99 = waits[len(waits) // 2], waits[int(len(waits) * 0.99)]
        rows.append([
            case.name, f"{middle:.0f}", f"{statistics.median(floor.cpu_us):.0f}",
            f"{decode:.0f}" if case.is_picture else "–",
            f"{middle / (statistics.median(floor.cpu_us) + decode):.2f}",
            f"{least / (min(floor.cpu_us) + decode):.2f}",
            "–" if case.most is None else f"{case.most:g}", f"{p50:.2f}", f"{p99:.2f}", f"{p99 / p50:.1f}",
        ])  # fmt: skip
    return table(titles, rows)


if __name__ == "__main__":
    sys.exit(main())
