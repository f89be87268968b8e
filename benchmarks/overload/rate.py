"""Send four times as many requests as a server can answer, for a minute: remaining throughput and waits.

    python -m benchmarks.overload.rate [--seconds 60] [--times 4] [--connections 200] [--save NAME]

The server has one core, the clients the others. First one client alone, whose p99 is the baseline of waits. Then
sixteen that ask again at once, whose answers a second are the peak. Then requests at a steady multiple of the peak
(those without a free connection are counted as unsent). Then many connections that each ask again at once. Another
client asks for health all the time.
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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import numpy as np
import uvloop

from benchmarks.machine import ROOT, describe
from benchmarks.overload.__main__ import EVERY_S, PATIENCE_S, requests, server
from benchmarks.overload.attacks import HOST, npy, post
from benchmarks.overload.watch import Answers, Usage, ask, watch
from benchmarks.raw import Result
from benchmarks.report import table

PEAK_CLIENTS: Final = 16
_BODY: Final = npy(np.zeros((8, 1, 16, 16), np.float32))
MESSAGE: Final = post("/infer?model=digits", "application/x-npy", len(_BODY)) + _BODY


@dataclass
class LoadAnswers:
    """Answers of one load by status, and their times in seconds."""

    statuses: Counter[int] = field(default_factory=Counter)
    good_s: list[float] = field(default_factory=list)
    refused_s: list[float] = field(default_factory=list)
    lost: int = 0
    unsent: int = 0

    def add(self, status: int, seconds: float) -> None:
        """Count an answer."""
        self.statuses[status] += 1
        (self.good_s if status == 200 else self.refused_s).append(seconds)


class Connection(asyncio.Protocol):
    """Connection that is kept, and opened again after the server has closed it.

    It takes some microseconds a request: a client of 6,000 requests a second must not measure its own load.

    Args:
        answered: called when a request is over, with any result.
    """

    def __init__(self, port: int, seen: LoadAnswers, answered: Callable[[Connection], None]) -> None:
        self._port = port
        self._seen = seen
        self._answered = answered
        self._transport: asyncio.Transport | None = None
        self._came = b""
        self._since: float | None = None

    @property
    def is_waiting(self) -> bool:
        """Return whether a request is open."""
        return self._since is not None

    def ask(self) -> None:
        """Send the request."""
        self._since, self._came = time.perf_counter(), b""
        if self._transport is None:
            asyncio.ensure_future(self._open())
        else:
            self._transport.write(MESSAGE)

    async def _open(self) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: self, HOST, self._port)
        except OSError:
            self._over()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(MESSAGE)

    def data_received(self, data: bytes) -> None:
        """Count the answer when it is complete."""
        self._came += data
        head, found, body = self._came.partition(b"\r\n\r\n")
        if not found:
            return
        head = head.lower()
        if len(body) >= int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0]):
            if b"connection: close" in head:
                self.close()
            self._over(int(head.split(b" ", 2)[1]))

    def connection_lost(self, exc: Exception | None) -> None:
        """Count the open request as lost."""
        self._transport = None
        self._over()

    def give_up(self, now: float) -> None:
        """Close the connection if nothing came for a while."""
        if self._since is not None and now - self._since > PATIENCE_S:
            self.close()
            self._over()

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    def _over(self, status: int | None = None) -> None:
        since, self._since = self._since, None
        if since is None:
            return
        if status is None:
            self._seen.lost += 1
        else:
            self._seen.add(status, time.perf_counter() - since)
        self._answered(self)


async def closed(port: int, connections: int, seconds: float) -> LoadAnswers:
    """Run this many clients that send the next request as soon as they are answered."""
    seen, end = LoadAnswers(), time.monotonic() + seconds

    def again(connection: Connection) -> None:
        if time.monotonic() < end:
            asyncio.get_running_loop().call_soon(connection.ask)

    everybody = [Connection(port, seen, again) for _ in range(connections)]
    for connection in everybody:
        connection.ask()
    await _until(end, everybody)
    return seen


async def steady(port: int, rate: float, connections: int, seconds: float) -> LoadAnswers:
    """Send this many requests a second, whatever becomes of them."""
    seen, start = LoadAnswers(), time.monotonic()
    free: list[Connection] = []
    everybody = [Connection(port, seen, free.append) for _ in range(connections)]
    free += everybody
    sent = 0
    while (now := time.monotonic() - start) < seconds:
        for _ in range(int(now * rate) - sent):
            sent += 1
            if free:
                free.pop().ask()
            else:
                seen.unsent += 1
        await asyncio.sleep(0.002)
    await _until(start + seconds, everybody)
    return seen


async def _until(end: float, everybody: Sequence[Connection]) -> None:
    """Wait for the end, and for the requests that are still open then."""
    while (left_s := end - time.monotonic()) > 0:
        await asyncio.sleep(min(1.0, left_s))
        for connection in everybody:
            connection.give_up(time.perf_counter())
    late = end + PATIENCE_S
    while any(connection.is_waiting for connection in everybody) and time.monotonic() < late:
        await asyncio.sleep(0.01)
    for connection in everybody:
        connection.close()


async def beside(load: Any, pid: int, port: int, seconds: float) -> tuple[LoadAnswers, Answers, Usage]:
    """Return a load's answers, the answers of a health client meanwhile, and what the server used."""
    end = time.monotonic() + seconds
    health = asyncio.create_task(ask(port, requests(port)[1], end, EVERY_S, PATIENCE_S))
    usage = asyncio.create_task(watch(pid, end))
    return await load, await health, await usage


async def run(pid: int, port: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run all loads, one after the other."""
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
    """Return p50, p99 and maximum in milliseconds; None without times."""
    ordered = sorted(times_s)
    if not ordered:
        return None
    return [ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1e3 for share in (0.5, 0.99, 1)]


def report(rows: Sequence[dict[str, Any]]) -> str:
    """Return the table."""
    titles = ["load", "goodput/s", "share of peak", "p50 ms", "p99 ms", "p99 / one client's", "refused",
              "refused p99 ms", "lost", "unsent", "health p99 ms", "MB before", "MB peak"]  # fmt: skip
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
    """Measure, print, and save if asked."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60, help="duration of each overload")
    parser.add_argument("--times", type=float, default=4, help="multiple of the peak")
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/raw/NAME.json")
    options = parser.parse_args()
    first, *others = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, others or {first})
    with tempfile.TemporaryDirectory() as cache, server(ROOT, cache, first) as (pid, port):
        rows = uvloop.run(run(pid, port, options))
    how = f"{options.seconds:g} s of each overload"
    result = Result(kind="rate", machine=describe(()), how=how, body=report(rows), records=rows)
    result.publish(options.save)
    return 0


if __name__ == "__main__":
    sys.exit(main())
