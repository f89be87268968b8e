"""Four times as many requests as a server can answer, for a minute: what of its peak is left, and who waits how long?

    python -m benchmarks.overload.rate [--seconds 60] [--times 4] [--connections 200] [--save NAME]

The server has one core, whoever asks the others. First one client alone, whose p99 is what waiting is held against;
then sixteen that ask again at once, whose answers a second are the peak. Then requests at a steady rate of so many
times the peak, whatever becomes of those before them (those for which no connection is free are not sent, and told);
then so many connections that each ask again as soon as they are answered. Another client asks for health all the time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from benchmarks.machine import ROOT, describe
from benchmarks.overload.__main__ import EVERY_S, PATIENCE_S, requests, server
from benchmarks.overload.attacks import HOST, npy, post
from benchmarks.overload.watch import Answers, Usage, ask, watch
from benchmarks.report import table, write

PEAK_CLIENTS: Final = 16
_BODY: Final = npy(np.zeros((8, 1, 16, 16), np.float32))
MESSAGE: Final = post("/infer?model=digits", "application/x-npy", len(_BODY)) + _BODY


@dataclass
class Seen:
    """Of one load: how many answers of each status, and how long they took, in seconds."""

    statuses: Counter[int] = field(default_factory=Counter)
    good_s: list[float] = field(default_factory=list)
    refused_s: list[float] = field(default_factory=list)
    lost: int = 0
    unsent: int = 0

    def add(self, status: int, seconds: float) -> None:
        """Count an answer."""
        self.statuses[status] += 1
        (self.good_s if status == 200 else self.refused_s).append(seconds)


class Connection:
    """One that is kept, and opened anew when the server has closed it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, seen: Seen) -> None:
        """Send the request, and count what comes of it."""
        start = time.perf_counter()
        try:
            async with asyncio.timeout(PATIENCE_S):
                status = await self._ask()
        except (OSError, EOFError, TimeoutError):
            seen.lost += 1
            self.close()
        else:
            seen.add(status, time.perf_counter() - start)

    async def _ask(self) -> int:
        if self._streams is None:
            self._streams = await asyncio.open_connection(HOST, self._port)
        reader, writer = self._streams
        writer.write(MESSAGE)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        await reader.readexactly(length)
        if b"connection: close" in head:
            self.close()
        return int(head.split(b" ", 2)[1])

    def close(self) -> None:
        """End it."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


async def closed(port: int, connections: int, seconds: float) -> Seen:
    """So many clients that ask again as soon as they are answered."""
    seen, end = Seen(), time.monotonic() + seconds

    async def client() -> None:
        connection = Connection(port)
        while time.monotonic() < end:
            await connection.ask(seen)
        connection.close()

    await asyncio.gather(*(client() for _ in range(connections)))
    return seen


async def steady(port: int, rate: float, connections: int, seconds: float) -> Seen:
    """So many requests a second, whatever becomes of them."""
    seen, start = Seen(), time.monotonic()
    free = [Connection(port) for _ in range(connections)]
    running: set[asyncio.Task[None]] = set()

    async def send(connection: Connection) -> None:
        await connection.ask(seen)
        free.append(connection)

    sent = 0
    while (now := time.monotonic() - start) < seconds:
        for _ in range(int(now * rate) - sent):
            sent += 1
            if free:
                task = asyncio.create_task(send(free.pop()))
                running.add(task)
                task.add_done_callback(running.discard)
            else:
                seen.unsent += 1
        await asyncio.sleep(0.002)
    await asyncio.gather(*running)
    for connection in free:
        connection.close()
    return seen


async def beside(load: Any, pid: int, port: int, seconds: float) -> tuple[Seen, Answers, Usage]:
    """A load, what a client heard that asked for health meanwhile, and what the server took."""
    end = time.monotonic() + seconds
    health = asyncio.create_task(ask(port, requests(port)[1], end, EVERY_S, PATIENCE_S))
    usage = asyncio.create_task(watch(pid, end))
    return await load, await health, await usage


async def run(pid: int, port: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """All loads, one after the other."""
    await closed(port, 2, 2)  # what is compiled for this batch is there afterwards
    rows = []
    peak = 0.0
    for name, seconds in (("alone", 8.0), ("peak", 15.0), ("rate", options.seconds), ("crowd", options.seconds)):
        if name == "rate":
            load = steady(port, options.times * peak, options.connections, seconds)
            title = f"{options.times:g} x the peak"
        else:
            count = {"alone": 1, "peak": PEAK_CLIENTS, "crowd": options.connections}[name]
            load, title = closed(port, count, seconds), {"alone": "one client", "peak": "the peak"}.get(name, "")
        before = Usage()
        before.look(pid)
        seen, health, usage = await beside(load, pid, port, seconds)
        goodput = len(seen.good_s) / seconds
        peak = max(peak, goodput) if name in ("alone", "peak") else peak
        rows.append(
            {
                "load": title or f"{options.connections} connections",
                "goodput": goodput,
                "of_peak": goodput / peak,
                "good_ms": _quantiles(seen.good_s),
                "refused_ms": _quantiles(seen.refused_s),
                "statuses": dict(seen.statuses),
                "lost": seen.lost,
                "unsent": seen.unsent,
                "health": health.describe(),
                "memory_mb": [before.memory_mb, usage.memory_mb],
            }
        )
        print(json.dumps(rows[-1]), flush=True)
        await asyncio.sleep(2)
    return rows


def _quantiles(times_s: Sequence[float]) -> list[float] | None:
    """p50, p99 and the longest, in milliseconds; None without any."""
    ordered = sorted(times_s)
    if not ordered:
        return None
    return [ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1e3 for share in (0.5, 0.99, 1)]


def report(rows: Sequence[dict[str, Any]]) -> str:
    """The table."""
    titles = ["load", "good/s", "of the peak", "p50 ms", "p99 ms", "x alone", "refused", "refused p99 ms",
              "lost", "unsent", "health p99 ms", "MB before", "MB most"]  # fmt: skip
    alone = (rows[0]["good_ms"] or [0, 1])[1]
    found = []
    for row in rows:
        good, refused = row["good_ms"] or [0, 0, 0], row["refused_ms"]
        count = sum(number for status, number in row["statuses"].items() if status != 200)
        found.append([
            row["load"], f"{row['goodput']:.0f}", f"{row['of_peak']:.2f}", f"{good[0]:.1f}", f"{good[1]:.1f}",
            f"{good[1] / alone:.1f}", str(count), "" if refused is None else f"{refused[1]:.1f}", str(row["lost"]),
            str(row["unsent"]), f"{row['health']['p99_ms'] or 0:.1f}", *(f"{each:.0f}" for each in row["memory_mb"]),
        ])  # fmt: skip
    return table(titles, found)


def main() -> int:
    """Measure, report, and save where asked."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60, help="of each overload")
    parser.add_argument("--times", type=float, default=4, help="the peak")
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/results/NAME.json and NAME.md")
    options = parser.parse_args()
    first, *others = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, others or {first})
    with tempfile.TemporaryDirectory() as cache, server(ROOT, cache, first) as (pid, port):
        rows = asyncio.run(run(pid, port, options))
    machine = describe(())
    head = f"{machine['processor']}, {machine['date']} UTC, commit {machine['commit']}; {options.seconds:g} s each"
    text = f"# More than a server can answer\n\n{head}\n\n{report(rows)}\n"
    print(text)
    if options.save:
        write(ROOT / "benchmarks" / "results" / options.save, text, machine, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
