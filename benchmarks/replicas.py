"""Compare two replicas on two cores, one thread each, with one.

    python -m benchmarks.replicas [--rounds 5] [--seconds 4] [--reach 1.7] [--save NAME]

Each server has a core of its own; one and two take turns, so that a slower machine affects both. Two clients a replica
send images of 128 by 128 to be enlarged, which take milliseconds, and ask again at once. Exit status 1 below the
target. On a busy machine compare processor time an answer.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

import httpx
import numpy as np

from benchmarks.machine import ROOT, describe
from benchmarks.overload.__main__ import server
from benchmarks.raw import Result
from benchmarks.report import table
from benchmarks.servers.wire import Connection

CLIENTS: Final = 2
_SHAPE: Final = (1, 3, 128, 128)
_SETTLE_S: Final = 60.0


def message() -> bytes:
    """Return the request as it is sent."""
    held = io.BytesIO()
    np.save(held, np.zeros(_SHAPE, np.float32))
    body = held.getvalue()
    head = (
        "POST /infer?model=superres HTTP/1.1\r\nhost: x\r\naccept: application/x-npy\r\n"
        f"content-type: application/x-npy\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def settle(port: int, text: bytes) -> None:
    """Send requests until the server has code for them."""
    connection, end = Connection(port), time.monotonic() + _SETTLE_S
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=_SETTLE_S) as http:
        for _ in range(4):
            connection.ask(text)
        while time.monotonic() < end:
            figures = http.get("/metrics").text
            if all(f'pnnx_serve_{name}{{worker="0"}} 0.0' in figures for name in ("compiling", "compile_wishes")):
                break
            time.sleep(0.1)
    connection.close()


def rate(ports: Sequence[int], text: bytes, seconds: float) -> float:
    """Return right answers a second of all replicas together.

    Raises:
        RuntimeError: an answer was not right.
    """
    begin, counts, wrong = threading.Barrier(CLIENTS * len(ports) + 1), list[int](), list[int]()

    def client(port: int) -> None:
        connection, count = Connection(port), 0
        connection.ask(text)
        begin.wait()
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            status, _, _ = connection.ask(text)
            if status != 200:
                wrong.append(status)
                break
            count += 1
        counts.append(count)
        connection.close()

    threads = [threading.Thread(target=client, args=(port,)) for port in ports for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    begin.wait()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    if wrong:
        raise RuntimeError(f"answered {wrong}, expected 200")
    return sum(counts) / (time.perf_counter() - start)


def cpu_s(pids: Sequence[int]) -> float:
    """Return the processor time of processes."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(each[11]) + int(each[12]) for each in fields) / os.sysconf("SC_CLK_TCK")


@dataclass
class Side:
    """Results of a number of replicas: answers a second by turn, and processor time an answer."""

    rates: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)


def measure(rounds: int, seconds: float) -> tuple[Side, Side]:
    """Measure one replica and two, in turn."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise SystemExit("two replicas need two cores")
    one, two, text = Side(), Side(), message()
    with tempfile.TemporaryDirectory() as cache, ExitStack() as stack:
        servers = [stack.enter_context(server(ROOT, cache, core)) for core in cores[:2]]
        for _, port in servers:
            settle(port, text)
        for turn in range(rounds):
            for asked, side in ((servers[turn % 2 :][:1], one), (servers, two)):
                pids, start = [pid for pid, _ in asked], time.perf_counter()
                before = cpu_s(pids)
                side.rates.append(rate([port for _, port in asked], text, seconds))
                answers = side.rates[-1] * (time.perf_counter() - start)
                side.cpu_ms.append((cpu_s(pids) - before) / answers * 1e3)
    return one, two


def main() -> int:
    """Measure, print, and save if asked."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--reach", type=float, default=1.7)
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/raw/NAME.json")
    options = parser.parse_args()
    one, two = measure(options.rounds, options.seconds)
    ratio = median(two.rates) / median(one.rates)
    cpu = 2 * min(one.cpu_ms) / min(two.cpu_ms)
    rows = [
        [name, f"{median(side.rates):.1f}", f"{max(side.rates):.1f}", f"{min(side.cpu_ms):.2f}"]
        for name, side in (("1", one), ("2", two))
    ]
    body = (
        f"{table(['replicas', 'answers/s, median', 'max', 'CPU ms an answer, min'], rows)}\n\n"
        f"Two replicas answer {ratio:.2f} times as many requests as one (medians; target {options.reach:g}), "
        f"{cpu:.2f} times by processor time."
    )
    records = [{"replicas": count, **asdict(side)} for count, side in ((1, one), (2, two))]
    how = f"{options.rounds} turns of {options.seconds:g} s"
    result = Result(kind="replicas", machine=describe(()), how=how, body=body, records=records)
    result.publish(options.save)
    return 0 if ratio >= options.reach else 1


if __name__ == "__main__":
    sys.exit(main())
