"""Measure what good clients notice of each attack, for the servers of one or more checkouts.

    python -m benchmarks.overload [--tree NAME=FOLDER ...] [--seconds 15] [--attacks NAME ...] [--save NAME]

Starts the server of every checkout (without any, of this one) on a core of its own, once for every attack and once
without. Meanwhile one client sends an image fifty times a second and another asks for health as often. The server's
memory, threads and open files are recorded, and again ten seconds after the attack. The attacker is a process of its
own, so that it does not delay the measured clients. Everything stays on loopback.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx

from benchmarks.machine import ROOT, describe
from benchmarks.overload.attacks import ATTACKS
from benchmarks.overload.report import attack_table
from benchmarks.overload.watch import Answers, Usage, ask, watch
from benchmarks.raw import Result

PICTURE: Final = ROOT / "model_store" / "digits" / "examples" / "digit-3-a.png"
EVERY_S: Final = 0.02
PATIENCE_S: Final = 10.0
AFTER_S: Final = 10.0


@contextmanager
def server(tree: Path, cache: str, core: int) -> Iterator[tuple[int, int]]:
    """Start a server of a checkout on one core; yield process and port when its models are loaded."""
    command = [sys.executable, "-m", "app", "serve", "--store", str(ROOT / "model_store"), "--port", "0"]
    environ = {**os.environ, "PYTHONPATH": str(tree), "PYTHONUNBUFFERED": "1", "XDG_CACHE_HOME": cache}
    with subprocess.Popen(
        command,
        cwd=tree,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environ,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    ) as process:
        try:
            banner = ""
            while "  try  " not in banner:
                line = process.stdout.readline()  # type: ignore[union-attr]
                if not line:
                    raise RuntimeError(f"the server of {tree} did not start")
                banner += line
            yield process.pid, int(re.findall(r"console +http://[^:]+:(\d+)/", banner)[0])
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(AFTER_S)
            except subprocess.TimeoutExpired:
                process.kill()


def requests(port: int) -> tuple[httpx.Request, httpx.Request]:
    """Return the good request and the health request."""
    url = f"http://127.0.0.1:{port}"
    picture = httpx.Request(
        "POST", f"{url}/infer?model=digits", content=PICTURE.read_bytes(), headers={"content-type": "image/png"}
    )
    return picture, httpx.Request("GET", f"{url}/health/live")


@contextmanager
def attacker(name: str, port: int, end: float) -> Iterator[subprocess.Popen[bytes] | None]:
    """Yield a process that attacks until a time, on this process's cores; None if there is no such attack."""
    if name not in ATTACKS:
        yield None
        return
    command = [sys.executable, "-m", "benchmarks.overload.attacks", name, str(port), repr(end)]
    with subprocess.Popen(command, cwd=ROOT) as process:
        try:
            yield process
        finally:
            try:
                process.wait(AFTER_S)
            except subprocess.TimeoutExpired:
                process.kill()


async def watched(pid: int, port: int, end: float) -> tuple[Answers, Answers, Usage]:
    """Return what good clients see until a time, and what the server uses."""
    picture, health = requests(port)
    return await asyncio.gather(
        ask(port, picture, end, EVERY_S, PATIENCE_S), ask(port, health, end, EVERY_S, PATIENCE_S), watch(pid, end)
    )


def measure(name: str, tree: Path, seconds: float, cache: str, cores: set[int]) -> dict[str, Any]:
    """Return the row of one attack on one checkout; the server on the first core, clients on the others."""
    first, *others = sorted(cores)
    os.sched_setaffinity(0, others or {first})
    with server(tree, cache, first) as (pid, port):
        before = Usage()
        before.look(pid)
        end = time.monotonic() + seconds
        with attacker(name, port, end):
            good, alive, usage = asyncio.run(watched(pid, port, end))
        time.sleep(AFTER_S if name in ATTACKS else 0)
        after = Usage()
        after.look(pid)
    return {
        "good": good.describe(),
        "health": alive.describe(),
        "memory_mb": {"start": before.memory_mb, "peak": usage.memory_mb, "after": after.memory_mb},
        "threads": usage.threads,
        "files": usage.files,
        "survived": after.threads > 0,
    }


def main() -> int:
    """Measure and report; return 1 if the last checkout's server did not survive."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tree", action="append", metavar="NAME=FOLDER", default=[])
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--attacks", nargs="*", choices=list(ATTACKS), default=list(ATTACKS))
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/raw/NAME.json")
    options = parser.parse_args()
    trees = dict(each.split("=", 1) for each in options.tree) or {"now": str(ROOT)}
    cores = os.sched_getaffinity(0)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as cache:
        for attack in ["nothing else", *options.attacks]:
            for name, folder in trees.items():
                found = measure(attack, Path(folder).resolve(), options.seconds, f"{cache}/{name}", cores)
                rows.append({"attack": attack, "tree": name, **found})
                print(json.dumps(rows[-1]), flush=True)
    how = f"{options.seconds:g} s of each attack"
    result = Result(kind="overload", machine=describe([]), how=how, body=attack_table(rows), records=rows)
    result.publish(options.save)
    newest = [row for row in rows if row["tree"] == list(trees)[-1]]
    return 0 if all(row["survived"] for row in newest) else 1


if __name__ == "__main__":
    sys.exit(main())
