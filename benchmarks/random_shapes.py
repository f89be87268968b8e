"""Run ten thousand random sizes: memory, and the slowest runs against one size.

    python -m benchmarks.random_shapes [--networks mobilenet_v2 bert_mini] [--runs 10000] [--threads 1] [--save NAME]

The networks are those of `benchmarks.random_sizes`. After the first hundred runs and after every tenth of all, memory
is recorded and the largest size is run, which takes longest. Some answers are compared with the reference's at the end.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

import engine
from benchmarks.files import default_folder
from benchmarks.machine import describe
from benchmarks.memory import resident_bytes
from benchmarks.random_sizes.networks import OPEN_NETWORKS, OpenNetwork, export_missing
from benchmarks.raw import Result
from benchmarks.report import table
from engine.tensor import Array

PARTS: Final = 10
FIRST: Final = 100
LARGEST: Final = 50
"""Runs of the largest size after every part."""
CHECKED: Final = 5
SEED: Final = 1
TITLES: Final = ["network", "runs", "median (ms)", "p99 (ms)", "p99 ÷ largest size's", "slowest (ms)", "RSS (MB)"]


def inputs_of(network: OpenNetwork) -> Callable[[Sequence[int]], Array]:
    """Return a function that returns an input of a shape: the first elements of that of the largest."""
    elements = network.input_of(network.largest_shape()).reshape(-1)
    return lambda shape: elements[: math.prod(shape)].reshape(shape).copy()


def milliseconds(session: engine.Session, x: Array) -> float:
    """Return the milliseconds of one run."""
    start = time.perf_counter()
    session.run([x])
    return 1e3 * (time.perf_counter() - start)


def measure(name: str, path: Path, threads: int, runs: int) -> dict[str, Any]:
    """Return times and memory of each part of the runs of one network.

    Raises:
        SystemExit: an answer is wrong.
    """
    network, random = OPEN_NETWORKS[name], np.random.default_rng(SEED)
    input_of = inputs_of(network)
    session = engine.Session(engine.load(path), threads=threads, cache=None)
    session.prepare()
    largest_ms: list[float] = []
    parts = []
    for count in (FIRST, runs // PARTS - FIRST, *[runs // PARTS] * (PARTS - 1)):
        times_ms = [milliseconds(session, input_of(network.draw_shape(random))) for _ in range(count)]
        parts.append({"times_ms": times_ms, "bytes": resident_bytes()})
        largest_ms += [milliseconds(session, input_of(network.largest_shape())) for _ in range(LARGEST)]
    reference = engine.Session(session.graph, backend="reference")
    for _ in range(CHECKED):
        x = input_of(network.draw_shape(random))
        found, expected = session.run([x])[0], reference.run([x])[0]
        if not np.abs(found - expected).max() <= 1e-3 * np.abs(expected).max():
            raise SystemExit(f"{name} {x.shape}: wrong answer")
    session.close()
    return {"network": name, "largest_ms": largest_ms, "parts": parts}


def rows_of(record: dict[str, Any]) -> list[list[str]]:
    """Return the rows of one network in the table."""
    parts, largest_ms = record["parts"], record["largest_ms"]
    numbers = [f"first {FIRST}", "rest of 1", *range(2, PARTS + 1)]
    runs = [f"{each} of {PARTS}" if number else each for number, each in enumerate(numbers)]
    rows = [[record["network"], "largest size", *_figures(largest_ms, largest_ms), ""]]
    for run, part in zip(runs, parts, strict=True):
        rows.append(["", run, *_figures(part["times_ms"], largest_ms), f"{part['bytes'] / 1e6:.1f}"])
    return rows


def _figures(times_ms: Sequence[float], largest_ms: Sequence[float]) -> list[str]:
    p99, of_largest = (float(np.quantile(each, 0.99)) for each in (times_ms, largest_ms))
    return [f"{each:.2f}" for each in (statistics.median(times_ms), p99, p99 / of_largest, max(times_ms))]


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ["mobilenet_v2", "bert_mini"]
    parser.add_argument("--networks", nargs="+", default=names, choices=list(OPEN_NETWORKS))
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=default_folder() / "random_sizes")
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/raw/NAME.json")
    args = parser.parse_args(argv)
    if args.runs <= FIRST * PARTS:
        parser.error(f"--runs: found {args.runs}, expected more than {FIRST * PARTS}")
    export_missing(args.networks, args.folder)
    records = []
    for name in args.networks:
        records.append(measure(name, args.folder / name / "model.onnx", args.threads, args.runs))
        print(f"{name}: measured", file=sys.stderr, flush=True)
    body = table(TITLES, [row for record in records for row in rows_of(record)])
    how = f"{args.runs} runs, {args.threads} thread(s), compile cache empty"
    result = Result(kind="random_shapes", machine=describe(()), how=how, body=body, records=records)
    result.publish(args.save)


if __name__ == "__main__":
    main()
