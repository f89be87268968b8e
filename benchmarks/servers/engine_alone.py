"""Compare throughput behind HTTP with the engine alone, in turn on one core.

    python -m benchmarks.servers.engine_alone --folder DIR [--networks NAME ...] [--rounds 7] [--save NAME]

Two clients on the other cores send tensors as V2 binary both ways. The engine runs in a process of its own, with one
thread, from array to array. The one that does not have its turn is stopped (SIGSTOP). The first answers of both are
compared with PyTorch's.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np

import engine
from benchmarks.files import Files
from benchmarks.machine import ROOT, describe
from benchmarks.networks import NETWORKS
from benchmarks.raw import Result
from benchmarks.report import table
from benchmarks.servers.process import make_files, measure, serving
from benchmarks.servers.rivals import OURS, RIVALS

CLIENTS: Final = 2
_PORT: Final = 18990
_WARM_S: Final = 15.0


def run(folder: Path) -> None:
    """Run the engine alone: for every number of seconds on standard input, print the runs a second."""
    files = Files(folder)
    session, x = engine.Session(engine.load(files.param), threads=1), np.load(files.input(1))
    session.prepare()  # without it the reference may answer until it is compiled
    (found,) = session.run([x])
    expected = np.load(files.output(1))
    if not np.allclose(found, expected, rtol=1e-3, atol=1e-3):
        raise SystemExit("a wrong answer")
    for line in sys.stdin:
        count, start, seconds = 0, time.perf_counter(), float(line)
        while time.perf_counter() - start < seconds:
            session.run([x])
            count += 1
        print(count / (time.perf_counter() - start), flush=True)


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Yield a process of the engine on the first core."""
    command = [sys.executable, "-m", "benchmarks.servers.engine_alone", "--folder", str(folder), "--run"]
    with subprocess.Popen(
        ["taskset", "-c", str(min(os.sched_getaffinity(0))), *command],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def rate(process: subprocess.Popen[str], seconds: float) -> float:
    """Return runs a second of the engine alone."""
    if process.stdin is None or process.stdout is None:
        raise ValueError("it can be told nothing")
    process.stdin.write(f"{seconds}\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def compare(name: str, folder: Path, rounds: int, seconds: float) -> tuple[list[float], list[float]]:
    """Return answers a second over HTTP and runs a second, one of each a round."""
    files = make_files(NETWORKS[name], folder)
    cores = sorted(os.sched_getaffinity(0))
    with contextlib.ExitStack() as stack:
        own = stack.enter_context(alone(files.folder))
        rival = RIVALS[OURS]
        log = folder / f"{rival.name}.log"
        python = Path(sys.executable)
        peer = stack.enter_context(serving(rival, python, files, _PORT, np.load(files.input(1)), log))
        if peer is None:
            raise SystemExit(f"the server does not answer {name}")
        rate(own, 0.1)  # compiled, then
        os.sched_setaffinity(0, cores[1:] or cores)
        # Whether batches are faster is found out beside the first requests.
        measure(peer, CLIENTS, _WARM_S)
        peer.side.rates.clear()
        runs = []
        for _ in range(rounds):
            peer.signal(signal.SIGSTOP)
            runs.append(rate(own, seconds))
            peer.signal(signal.SIGCONT)
            measure(peer, CLIENTS, seconds)
        os.sched_setaffinity(0, cores)
        return peer.side.rates[CLIENTS], runs


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True, help="folder for models")
    parser.add_argument("--networks", nargs="+", default=["resnet18", "mobilenet_v2"], choices=list(NETWORKS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a turn")
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/raw/NAME.json")
    parser.add_argument("--run", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.run:
        run(args.folder)
        return
    found = {name: compare(name, args.folder.absolute(), args.rounds, args.seconds) for name in args.networks}
    rows = [
        [name, *(f"{pick(each):.1f}" for each in (served, runs) for pick in (statistics.median, max))]
        + [f"{pick(served) / pick(runs):.2f}" for pick in (statistics.median, max)]
        for name, (served, runs) in found.items()
    ]
    titles = ["network", "answers/s", "max", "engine runs/s", "max", "share (medians)", "share (maxima)"]
    how = f"{args.rounds} turns of {args.seconds:g} s each; {CLIENTS} clients, V2 binary both ways, 1 thread"
    records = [{"network": name, "answers": served, "runs": runs} for name, (served, runs) in found.items()]
    result = Result(kind="engine_alone", machine=describe(()), how=how, body=table(titles, rows), records=records)
    result.publish(args.save)


if __name__ == "__main__":
    main()
