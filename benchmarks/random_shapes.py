"""Run random sizes: memory, and the slowest runs against a fixed size.

    python -m benchmarks.random_shapes [--pictures NAME] [--runs 10000] [--threads 1] [--save NAME]

The network is that of bench_shapes.py: lines of text of dynamic width, here 32 to 320. With ``--pictures`` it is one of
bench_graph.py (mobilenet_v2) with any height and width from 96 to 288, where hardly any size repeats. Memory is
recorded after every tenth of the runs. The fixed size is the largest, which takes longest. Some answers are compared
with the reference's.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

import engine
from benchmarks.bench_shapes import F32, HEIGHT, network
from benchmarks.files import Files, default_folder
from benchmarks.machine import describe
from benchmarks.memory import resident_bytes
from benchmarks.raw import Result
from benchmarks.report import table
from engine.graph import RuntimeGraph
from engine.tensor import TensorSpec

WIDTHS: Final = (32, 320)
PIXELS: Final = (96, 288)
PARTS: Final = 10
_LOOK_EVERY: Final = 500


@dataclass(frozen=True, slots=True)
class Sizes:
    """Network, and inputs of any size for it.

    Args:
        largest: the size that takes longest.
        drawn: draws a random size.
        what: description for the report.
    """

    graph: RuntimeGraph
    largest: tuple[int, ...]
    drawn: Callable[[np.random.Generator], tuple[int, ...]]
    what: str

    @staticmethod
    def made(shape: tuple[int, ...]) -> np.ndarray:
        """Return an input of a size."""
        return np.random.default_rng(math.prod(shape)).random(shape, F32)


def lines() -> Sizes:
    """Return lines of text of any width."""

    def drawn(random: np.random.Generator) -> tuple[int, ...]:
        return 1, 1, HEIGHT, int(random.integers(WIDTHS[0], WIDTHS[1] + 1))

    return Sizes(network(), (1, 1, HEIGHT, WIDTHS[1]), drawn, f"widths {WIDTHS[0]} to {WIDTHS[1]}")


def pictures(name: str) -> Sizes:
    """Return a network of bench_graph.py, for images of any height and width."""
    files = Files(default_folder() / name)
    if not files.param.exists():
        raise SystemExit(f"python -m benchmarks.bench_graph --networks {name} --export-only")
    graph = RuntimeGraph(files.param, files.bin)
    graph.init()
    (port,) = [each for each in graph.source.operators if each.type == "pnnx.Input"]
    spec = TensorSpec((1, 3, None, None), F32)
    opened = RuntimeGraph.from_source(replace(graph.source, annotations={port.outputs[0]: spec}))
    opened.build()

    def drawn(random: np.random.Generator) -> tuple[int, ...]:
        height, width = random.integers(PIXELS[0], PIXELS[1] + 1, 2)
        return 1, 3, int(height), int(width)

    what = f"{name}, heights and widths {PIXELS[0]} to {PIXELS[1]}"
    return Sizes(opened, (1, 3, PIXELS[1], PIXELS[1]), drawn, what)


def seconds(session: engine.Session, x: np.ndarray) -> float:
    """Return the seconds of one run."""
    start = time.perf_counter()
    session.run([x])
    return time.perf_counter() - start


def fixed(sizes: Sizes, threads: int | None, runs: int) -> list[float]:
    """Return the milliseconds of runs of the largest size."""
    session, x = engine.Session(sizes.graph, threads=threads, cache=None), sizes.made(sizes.largest)
    session.prepare(specs=[TensorSpec(x.shape, x.dtype)])
    times = [1e3 * seconds(session, x) for _ in range(runs)]
    session.close()
    return times


def measured(sizes: Sizes, threads: int | None, runs: int) -> list[dict[str, Any]]:
    """Return times and memory of each tenth of the runs."""
    random = np.random.default_rng(1)
    session = engine.Session(sizes.graph, threads=threads, cache=None)
    reference = engine.Session(sizes.graph, backend="reference")
    parts = []
    for part in range(PARTS):
        times = []
        for number in range(runs // PARTS):
            x = sizes.made(sizes.drawn(random))
            times.append(1e3 * seconds(session, x))
            if number % _LOOK_EVERY == 0:
                expected = reference.run([x])[0]
                error = np.abs(session.run([x])[0] - expected).max()
                assert error <= 1e-3 * np.abs(expected).max(), f"{x.shape}: {error}"
        parts.append({"part": part, "times_ms": times, "bytes": resident_bytes()})
    session.close()
    return parts


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pictures", metavar="NAME", help="a network of bench_graph.py; without it lines of text")
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/raw/NAME.json")
    args = parser.parse_args(argv)
    sizes = pictures(args.pictures) if args.pictures else lines()
    alone = fixed(sizes, args.threads, max(100, args.runs // PARTS))
    parts = measured(sizes, args.threads, args.runs)
    rows = [_row("always the largest", alone, None, alone)]
    rows += [_row(f"{each['part'] + 1} of {PARTS}", each["times_ms"], each["bytes"], alone) for each in parts]
    titles = ["runs", "median ms", "p99 ms", "p99 / largest size's", "max ms", "RSS MB"]
    how = f"{args.runs} runs, {args.threads} threads, {sizes.what}"
    kind = "random_pictures" if args.pictures else "random_lines"
    records = [{"fixed_ms": alone}, *parts]
    result = Result(kind=kind, machine=describe(()), how=how, body=table(titles, rows), records=records)
    print(result.text())
    if args.save:
        result.save(args.save)


def _row(name: str, times: Sequence[float], held: int | None, alone: Sequence[float]) -> list[str]:
    p99 = _p99(times)
    figures = [statistics.median(times), p99, p99 / _p99(alone), max(times)]
    return [name, *(f"{each:.2f}" for each in figures), "" if held is None else f"{held / 1e6:.0f}"]


def _p99(times: Sequence[float]) -> float:
    return sorted(times)[int(0.99 * (len(times) - 1))]


if __name__ == "__main__":
    main()
