"""Compare two checkouts of this project on the same networks, in turn.

    python -m benchmarks.checkouts --tree before=FOLDER --tree now=. [--networks resnet18 ...] [--batch 8] [--save NAME]

The networks are those that ``bench_graph`` has exported. Each checkout runs in a process of its own with its own cache
and the same cores, and is stopped while the other has its turn. Repeat a run before believing a difference: two runs of
one checkout differ by some hundredths.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.files import Files, default_folder
from benchmarks.machine import ROOT, describe
from benchmarks.raw import Result

_LARGEST_ERROR = 1e-3


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Times of both checkouts, in seconds."""

    network: str
    threads: int
    before_s: list[float]
    after_s: list[float]

    def ratio(self, *, median: bool) -> float:
        """Return the first checkout's time divided by the second's."""
        of = statistics.median if median else min
        return of(self.before_s) / of(self.after_s)


class Worker:
    """Session of one checkout on one network."""

    def __init__(self, tree: Path, folder: Path, threads: int, cache: Path, batch: int = 1) -> None:
        cores = sorted(os.sched_getaffinity(0))[-threads:]
        files = Files(folder)
        command = [
            "taskset",
            "-c",
            ",".join(map(str, cores)),
            _python(tree),
            str(ROOT / "benchmarks/checkout_worker.py"),
        ]
        self._process = subprocess.Popen(
            [*command, *map(str, (folder, files.input(batch), files.output(batch), threads, cache))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(tree), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )
        error = json.loads(self._line())
        if error > _LARGEST_ERROR:
            self.close()
            raise SystemExit(f"{folder.name} of {tree}: differs from PyTorch's answer by {error:.2g} of its largest")
        self._process.send_signal(signal.SIGSTOP)

    def turn(self, seconds: float) -> list[float]:
        """Return the times of the runs of one turn."""
        assert self._process.stdin is not None
        self._process.send_signal(signal.SIGCONT)
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        times: list[float] = json.loads(self._line())
        self._process.send_signal(signal.SIGSTOP)
        return times

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        with self._process:  # waits, and closes the pipes
            pass

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.close()
            raise SystemExit("a worker ended; what it said is above")
        return line


def _python(tree: Path) -> str:
    """Return the checkout's own interpreter if it has one: another version may need other packages."""
    own = tree / ".venv" / "bin" / "python"
    return str(own) if own.exists() else sys.executable


def compare(
    trees: Sequence[Path],
    caches: Sequence[Path],
    folder: Path,
    threads: int,
    rounds: int,
    seconds: float,
    batch: int = 1,
) -> Pair:
    """Run both checkouts in turn."""
    workers = [Worker(tree, folder, threads, cache, batch) for tree, cache in zip(trees, caches, strict=True)]
    times: tuple[list[float], list[float]] = ([], [])
    try:
        for number in range(rounds):
            for index in (0, 1) if number % 2 else (1, 0):
                times[index].extend(workers[index].turn(seconds))
    finally:
        for worker in workers:
            worker.close()
    return Pair(network=folder.name, threads=threads, before_s=times[0], after_s=times[1])


def _shown(times: Sequence[float]) -> str:
    return f"{min(times) * 1e3:.2f} / {statistics.median(times) * 1e3:.2f}"


def report(names: Sequence[str], pairs: Sequence[Pair]) -> str:
    """Return the table, the geometric mean of the ratios, and the lowest and highest."""
    rows = [f"| network | threads | {names[0]} ms | {names[1]} ms | {names[0]} / {names[1]} | by medians |"]
    rows.append("|---|---|---|---|---|---|")
    for pair in pairs:
        both = [_shown(times) for times in (pair.before_s, pair.after_s)]
        rows.append(
            f"| {pair.network} | {pair.threads} | {both[0]} | {both[1]} | {pair.ratio(median=False):.3f} |"
            f" {pair.ratio(median=True):.3f} |"
        )
    least = [pair.ratio(median=False) for pair in pairs]
    mean = statistics.geometric_mean(least)
    summary = f"Geometric mean {mean:.3f}, lowest {min(least):.3f}, highest {max(least):.3f}."
    return "\n".join([*rows, "", summary])


def main() -> int:
    """Measure, print the table, and save it if asked."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.checkouts", description=(__doc__ or "").splitlines()[0], allow_abbrev=False
    )
    parser.add_argument("--tree", action="append", required=True, metavar="NAME=FOLDER", help="a checkout; given twice")
    parser.add_argument("--folder", type=Path, default=default_folder(), help="folder of the networks (%(default)s)")
    parser.add_argument("--networks", nargs="+", help="names (all there are)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="(1 2)")
    parser.add_argument("--batch", type=int, default=1, help="(1)")
    parser.add_argument("--rounds", type=int, default=7, help="turns of both (7)")
    parser.add_argument("--seconds", type=float, default=0.3, help="length of a turn, or three runs (0.3)")
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/raw/NAME.json")
    options = parser.parse_args()
    named = [text.partition("=") for text in options.tree]
    if len(named) != 2:
        parser.error("--tree is given twice")
    trees = [Path(folder).resolve() for _, _, folder in named]
    there = sorted(path.parent for path in options.folder.glob("*/model.pnnx.param"))
    named_there = [folder for folder in there if not options.networks or folder.name in options.networks]
    wanted = [folder for folder in named_there if Files(folder).input(options.batch).exists()]
    pairs = []
    with tempfile.TemporaryDirectory() as kept:
        caches = [Path(kept) / str(index) for index in range(len(trees))]
        for folder in wanted:
            for threads in options.threads:
                pair = compare(trees, caches, folder, threads, options.rounds, options.seconds, options.batch)
                least, middle = pair.ratio(median=False), pair.ratio(median=True)
                print(f"{pair.network} {threads}: {least:.3f} {middle:.3f}", flush=True)
                pairs.append(pair)
    body = report([name for name, _, _ in named], pairs)
    how = f"batch {options.batch}; ms, fastest run / median; ratios of fastest runs"
    records = [asdict(pair) for pair in pairs]
    result = Result(kind="checkouts", machine=describe(()), how=how, body=body, records=records)
    result.publish(options.save)
    return 0


if __name__ == "__main__":
    sys.exit(main())
