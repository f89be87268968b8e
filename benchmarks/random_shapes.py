"""Runs of sizes at random: memory, and how long the slowest take beside a size that is always the same.

    python -m benchmarks.random_shapes [--runs 10000] [--threads 1] [--save NAME]

The network is that of bench_shapes.py: text in lines whose width is open, here 32 to 320. A session that chooses for
itself runs a width at random, again and again; what it holds is written down after a tenth of the runs and at the end.
The fixed size it is held against is the widest: no line at random takes longer by itself. Answers are held against the
reference's now and then.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

import engine
from benchmarks.bench_shapes import F32, HEIGHT, network
from benchmarks.machine import ROOT, describe, heading
from benchmarks.memory import resident_bytes
from benchmarks.report import table, write

WIDTHS: Final = (32, 320)
PARTS: Final = 10
_LOOK_EVERY: Final = 500


def line(width: int) -> np.ndarray:
    """A picture of a line of text."""
    return np.random.default_rng(width).random((1, 1, HEIGHT, width), F32)


def seconds(session: engine.Session, x: np.ndarray) -> float:
    """Of one run."""
    start = time.perf_counter()
    session.run([x])
    return time.perf_counter() - start


def fixed(threads: int | None, runs: int) -> list[float]:
    """Milliseconds of runs of the widest line."""
    session, x = engine.Session(network(), threads=threads, cache=None), line(WIDTHS[1])
    session.prepare(specs=[engine.TensorSpec(x.shape, x.dtype)])
    times = [1e3 * seconds(session, x) for _ in range(runs)]
    session.close()
    return times


def measured(threads: int | None, runs: int) -> list[dict[str, Any]]:
    """What was seen in each tenth of the runs."""
    graph, random = network(), np.random.default_rng(1)
    session = engine.Session(graph, threads=threads, cache=None)
    reference = engine.Session(graph, backend="reference")
    parts = []
    for part in range(PARTS):
        times = []
        for number in range(runs // PARTS):
            x = line(int(random.integers(WIDTHS[0], WIDTHS[1] + 1)))
            times.append(1e3 * seconds(session, x))
            if number % _LOOK_EVERY == 0:
                expected = reference.run([x])[0]
                np.testing.assert_allclose(session.run([x])[0], expected, rtol=1e-3, atol=1e-4)
        parts.append({"part": part, "times_ms": times, "bytes": resident_bytes()})
    session.close()
    return parts


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/results/NAME.json and NAME.md")
    args = parser.parse_args(argv)
    alone = fixed(args.threads, max(100, args.runs // PARTS))
    parts = measured(args.threads, args.runs)
    rows = [_row("always the widest", alone, None, alone)]
    rows += [_row(f"{each['part'] + 1} of {PARTS}", each["times_ms"], each["bytes"], alone) for each in parts]
    machine = describe(())
    titles = ["runs", "median ms", "p99 ms", "p99 x the widest's", "slowest ms", "RSS MB"]
    how = f"{args.runs} runs, {args.threads} threads, widths {WIDTHS[0]} to {WIDTHS[1]}"
    text = f"# Sizes at random\n\n{heading(machine)}; {how}\n\n{table(titles, rows)}\n"
    print(text)
    if args.save:
        write(ROOT / "benchmarks" / "results" / args.save, text, machine, [{"fixed_ms": alone}, *parts])


def _row(name: str, times: Sequence[float], held: int | None, alone: Sequence[float]) -> list[str]:
    p99 = _p99(times)
    figures = [statistics.median(times), p99, p99 / _p99(alone), max(times)]
    return [name, *(f"{each:.2f}" for each in figures), "" if held is None else f"{held / 1e6:.0f}"]


def _p99(times: Sequence[float]) -> float:
    return sorted(times)[int(0.99 * (len(times) - 1))]


if __name__ == "__main__":
    main()
