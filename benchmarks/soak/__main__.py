"""Run everything at once for half an hour: every answer must be right, and the server must stay small.

    python -m benchmarks.soak [--seconds 1800] [--clients 32] [--looks FILE]

A server process of its own on a free loopback port, with a store of its own. Clients send tensors and images in every
form, and bad requests of every kind; others disconnect within a body or before their answer; the files of one model
change every two seconds, another model is unloaded and loaded, a third caches its answers, requests to a fourth are
batched. Every good answer is compared with the engine's; every bad request must get its own 4xx; 429 and 503 are right
with Retry-After. The server runs with ``verify_batches``: it compares its batched runs with the reference.

The server warms up in the first fifth of the time, five minutes at most. At the end nothing may be running or waiting,
no memory may be reserved for requests, threads and files may not be more than at the end of the warm-up, and memory may
not have grown by more than 16 MB since. Exit status 1 otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from benchmarks.machine import ROOT, describe
from benchmarks.raw import Result
from benchmarks.report import table
from benchmarks.soak.requests import Request, bad_requests, good_requests, judge, small_requests
from benchmarks.soak.store import change, write_store
from benchmarks.soak.usage import UsageLog

ALLOWED_GROWTH_MB = 16
PATIENCE_S = 60.0
QUIET_S = 30.0
CHANGE_S, VISIT_S = 2.0, 3.0
MODELS = ROOT / "model_store"
# Metrics that are 0 once nothing is asked for any more, and where every batched run gives what the reference gives.
HELD = "pnnx_serve_(?:queued_requests|running_requests|request_memory_bytes)"
MISMATCHES = "pnnx_serve_batch_mismatches_total"


@dataclass
class Counters:
    """Counters of the soak."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    waits_s: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Target:
    """Server, and when to stop."""

    url: str
    store: Path
    end: float

    @property
    def is_over(self) -> bool:
        """Return whether it is time to stop."""
        return time.monotonic() >= self.end


async def client(target: Target, fixed: Sequence[Request], seed: int, counters: Counters) -> None:
    """Send one request after the other on one connection."""
    chooser = random.Random(seed)
    async with httpx.AsyncClient(base_url=target.url, timeout=PATIENCE_S, trust_env=False) as http:
        while not target.is_over:
            request = chooser.choice([*fixed, *small_requests(chooser) * 4])
            start = time.monotonic()
            try:
                answer = await http.post(request.path, content=request.body, headers=request.headers)
            except httpx.HTTPError as exc:
                counters.wrong.append(f"{request.name}: {type(exc).__name__} after {time.monotonic() - start:.1f} s")
                continue
            counters.waits_s.append(time.monotonic() - start)
            counters.counts[str(answer.status_code)] += 1
            if (problem := judge(request, answer)) is not None:
                counters.wrong.append(problem)


async def leaver(target: Target, fixed: Sequence[Request], seed: int, counters: Counters) -> None:
    """Disconnect within a body, or right after it."""
    chooser = random.Random(seed)
    host, _, port = target.url.removeprefix("http://").partition(":")
    while not target.is_over:
        request = chooser.choice(fixed)
        headers = "".join(f"{key}: {value}\r\n" for key, value in request.headers.items())
        head = f"POST {request.path} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(request.body)}\r\n{headers}\r\n"
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(head.encode() + request.body[: chooser.choice((0, len(request.body) // 2, None))])
            await asyncio.sleep(chooser.choice((0, 0.002, 0.05)))
            writer.transport.abort()
        counters.counts["went away"] += 1
        await asyncio.sleep(0.02)


async def changer(target: Target, counters: Counters) -> None:
    """Change the files of one model."""
    turn = 0
    while not target.is_over:
        turn += 1
        change(target.store, turn)
        counters.counts["files changed"] += 1
        await asyncio.sleep(CHANGE_S)


async def host(target: Target, counters: Counters) -> None:
    """Unload a model and load it again."""
    async with httpx.AsyncClient(base_url=target.url, timeout=PATIENCE_S, trust_env=False) as http:
        while not target.is_over:
            for verb in ("unload", "load"):
                answer = await http.post(f"/v2/repository/models/visiting/{verb}")
                if answer.status_code not in (200, 429):
                    counters.wrong.append(f"{verb}: {answer.status_code} {answer.text[:200]}")
                counters.counts[verb] += 1
                await asyncio.sleep(VISIT_S / 2)


async def watcher(target: Target, watch: UsageLog) -> None:
    """Record the server's usage once a second."""
    while not target.is_over:
        watch.look()
        await asyncio.sleep(1)


async def soak(target: Target, watch: UsageLog, clients: int) -> Counters:
    """Run everything until the end."""
    counters = Counters()
    good, bad = good_requests(MODELS), bad_requests(MODELS)
    fixed = [*good, *bad]
    work = [client(target, fixed, seed, counters) for seed in range(clients)]
    work += [leaver(target, good, -1 - seed, counters) for seed in range(max(1, clients // 8))]
    await asyncio.gather(*work, changer(target, counters), host(target, counters), watcher(target, watch))
    return counters


def settled(seconds: float) -> float:
    """Return when the server has warmed up."""
    return min(300.0, seconds / 5)


def left_behind(url: str, watch: UsageLog, settled_s: float) -> list[str]:
    """Return what is still held without any client, once the server is idle or should be."""
    early = [look for look in watch.looks if look.at_s <= settled_s]
    threads, files = max(look.threads for look in early), max(look.files for look in early)
    end, found = time.monotonic() + QUIET_S, ["never looked at"]
    while found and time.monotonic() < end:
        time.sleep(0.5)
        now = watch.look()
        found = [f"{name} is {value:g}" for name, value in metrics(url, HELD) if value]
        if now.threads > threads:
            found.append(f"{now.threads} threads, at most {threads} before")
        if now.files > files:
            found.append(f"{now.files} files, at most {files} before")
    return found


def metrics(url: str, names: str) -> Iterator[tuple[str, float]]:
    """Yield the metrics whose names match a pattern, with labels and values."""
    text = httpx.get(f"{url}/metrics", trust_env=False).text
    for name, value in re.findall(rf"^({names}{{[^}}]*}}) (\S+)$", text, re.MULTILINE):
        yield name, float(value)


@contextlib.contextmanager
def serving(store: Path) -> Iterator[tuple[int, str]]:
    """Yield a server's process and address when its models are loaded."""
    command = [sys.executable, "-m", "app", "serve", "--store", str(store), "--port", "0", "--reload-interval-s", "0.5"]
    command += ["--log-level", "error"]
    environ = {**os.environ, "PYTHONUNBUFFERED": "1", "PNNX_SERVE_VERIFY_BATCHES": "true"}
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=environ) as server:
        try:
            banner = ""
            while "  try  " not in banner:
                line = server.stdout.readline() if server.stdout is not None else ""
                if not line:
                    raise SystemExit("the server did not start")
                banner += line
            yield server.pid, re.findall(r"console +(http://\S+)/", banner)[0]
        finally:
            server.send_signal(signal.SIGTERM)
            if server.wait(PATIENCE_S):
                raise SystemExit(f"the server ended with {server.returncode}")


def report(counters: Counters, log: UsageLog, left: Sequence[str], seconds: float) -> list[list[str]]:
    """Return the rows of the table."""
    waits, growth = sorted(counters.waits_s), log.growth_mb(settled(seconds))
    count, first, last = len(waits), log.looks[0], log.looks[-1]
    p50, p99 = (waits[count * share // 100] * 1e3 for share in (50, 99))
    return [
        ["answers", f"{count} in {seconds:.0f} s ({count / seconds:.0f}/s)"],
        *([name, str(number)] for name, number in sorted(counters.counts.items())),
        ["p50, p99, longest wait", f"{p50:.1f} ms, {p99:.1f} ms, {waits[-1] * 1e3:.0f} ms"],
        ["memory", f"{first.memory_mb:.0f} MB at the start, {growth:+.1f} MB after warm-up"],
        ["threads, open files", f"{first.threads} → {last.threads}, {first.files} → {last.files}"],
        ["wrong answers, leaks", f"{len(counters.wrong)}, {len(left)}"],
    ]


def main() -> int:
    """Soak and report."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--looks", type=Path, help="file for memory, threads and open files, a line a second")
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/raw/NAME.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder)
        write_store(store, MODELS)
        with serving(store) as (pid, url):
            start = time.monotonic()
            watch = UsageLog(pid, start)
            watch.look()
            counters = asyncio.run(soak(Target(url, store, start + options.seconds), watch, options.clients))
            left = left_behind(url, watch, settled(options.seconds))
            counters.wrong += [f"{name} is {value:g}" for name, value in metrics(url, MISMATCHES) if value]
    if options.looks is not None:
        watch.write(options.looks)
    rows = report(counters, watch, left, options.seconds)
    body, records = table(["figure", "value"], rows), [dict(rows)]
    result = Result(kind="soak", machine=describe(()), how=f"{options.clients} clients", body=body, records=records)
    print(result.text())
    for line in [*counters.wrong[:20], *left]:
        print(f"WRONG {line}")
    if options.save:
        result.save(options.save)
    growth = watch.growth_mb(settled(options.seconds))
    return 1 if counters.wrong or left or growth > ALLOWED_GROWTH_MB else 0


if __name__ == "__main__":
    sys.exit(main())
