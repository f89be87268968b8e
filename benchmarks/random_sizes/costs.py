"""Measure what dynamic sizes cost, beside the same network with its sizes fixed.

    python -m benchmarks.random_sizes.costs [--networks mobilenet_v2 ...] [--sizes 150] [--save NAME]

* new size: first run of a size minus the second one, when a template is valid for it (median)
* own shape: run time at the shape of the example, dynamic sizes divided by fixed ones, in turns
* start: seconds from the file to the first answer in a new process, with an empty and with a filled compile cache
* burst: p99 of another session in the process, which runs every 5 ms, while a thread runs forty new sizes, divided by
  its p99 alone: in a fresh session that compiles, in one with a template, and for these forty sizes again, which is
  what sharing the process costs

All sessions have one thread.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any, Final

import numpy as np

import engine
from benchmarks.files import default_folder
from benchmarks.machine import ROOT, describe
from benchmarks.random_sizes.networks import OPEN_NETWORKS, OpenNetwork, export_missing
from benchmarks.raw import Result
from benchmarks.report import table
from engine.tensor import Array, TensorSpec

SEED: Final = 5
KNOWN: Final = 25
"""Sizes that run first: afterwards a template is valid for nearly all sizes."""
TURNS: Final = 7
TURN_S: Final = 0.15
BURST: Final = 40
BURSTS: Final = 4
EVERY_S: Final = 0.005
ALONE_S: Final = 1.0
NEIGHBOUR: Final = "mobilenet_v3_small"
TITLES: Final = [
    "network", "new size (µs)", "own shape: dynamic ÷ fixed", "of medians", "cold start (s)", "fixed (s)",
    "warm start (s)", "fixed (s)", "p99 beside a fresh session", "beside new sizes", "beside known sizes",
]  # fmt: skip


def load(network: OpenNetwork, path: Path, *, is_fixed: bool) -> engine.RuntimeGraph:
    """Return the graph of a file, or the same with the sizes of the example."""
    graph = engine.load(path)
    if not is_fixed:
        return graph
    (port,) = graph.inputs
    dtype = np.dtype(np.int64 if network.network.vocabulary else np.float32)
    annotations = {**graph.source.annotations, port.operand: TensorSpec(network.network.shape, dtype)}
    return graph.rebuilt(replace(graph.source, annotations=annotations, size_names={}))


def session_of(graph: engine.RuntimeGraph, cache: str | None = None) -> engine.Session:
    """Return a session with one thread that waits for what it compiles."""
    return engine.Session(graph, backend="compiled", threads=1, cache=cache)


def seconds(run: Callable[[], Any]) -> float:
    """Return the seconds of a call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def new_size_s(network: OpenNetwork, session: engine.Session, count: int) -> list[float]:
    """Return the extra seconds of the first run of each of so many sizes."""
    found = []
    for shape in _new_shapes(network, count):
        first, second = (seconds(partial(session.run, [network.input_of(shape)])) for _ in range(2))
        found.append(first - second)
    return found


def _new_shapes(network: OpenNetwork, count: int, seed: int = SEED) -> list[tuple[int, ...]]:
    random = np.random.default_rng(seed)
    drawn = (network.draw_shape(random) for _ in range(20 * count))
    return list(dict.fromkeys(drawn))[:count]


def turns_s(sessions: Sequence[engine.Session], x: Array) -> list[list[float]]:
    """Return the run times of each session, which take turns."""
    found: list[list[float]] = [[] for _ in sessions]
    for _ in range(TURNS):
        for times, session in zip(found, sessions, strict=True):
            end = time.perf_counter() + TURN_S
            session.run([x])
            while time.perf_counter() < end or len(times) < 3:
                times.append(seconds(partial(session.run, [x])))
    return found


def start_s(name: str, path: Path, cache: Path, *, is_fixed: bool) -> float:
    """Return the seconds from the file to the first answer in a process of its own."""
    call = f"first_answer_s({name!r}, {str(path)!r}, {is_fixed})"
    command = f"from benchmarks.random_sizes.costs import first_answer_s; print({call})"
    environ = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    return float(subprocess.check_output([sys.executable, "-c", command], cwd=ROOT, env=environ, text=True))


def first_answer_s(name: str, path: str, is_fixed: bool) -> float:
    """Return the seconds from the file to the first answer in this process."""
    network = OPEN_NETWORKS[name]
    x = network.input_of(network.network.shape)
    return seconds(lambda: session_of(load(network, Path(path), is_fixed=is_fixed), "auto").run([x]))


class Neighbour:
    """Another client of the process, which asks for one size of one network every few milliseconds."""

    def __init__(self, session: engine.Session, x: Array) -> None:
        self._session, self._x = session, x
        session.run([x])

    def times_s(self, beside: Callable[[], Any]) -> list[float]:
        """Return its run times while something else runs."""
        end, found = threading.Event(), list[float]()

        def ask() -> None:
            while not end.wait(EVERY_S):
                found.append(seconds(partial(self._session.run, [self._x])))

        thread = threading.Thread(target=ask)
        thread.start()
        beside()
        end.set()
        thread.join()
        return found


def bursts(network: OpenNetwork, path: Path, session: engine.Session, neighbour: Neighbour) -> dict[str, float]:
    """Return the neighbour's p99 during forty runs of each kind, divided by its p99 while nothing else runs."""
    shapes = _new_shapes(network, BURSTS * BURST, SEED + 1)
    times: dict[str, list[float]] = {"alone": [], "known": [], "new": [], "fresh": []}
    for start in range(0, len(shapes) - BURST + 1, BURST):
        inputs = [network.input_of(each) for each in shapes[start : start + BURST]]
        fresh = engine.Session(load(network, path, is_fixed=False), threads=1, cache=None)
        for kind, user in (("fresh", fresh), ("new", session), ("known", session)):
            times[kind] += neighbour.times_s(partial(_run_all, user, inputs))
        fresh.close()
        times["alone"] += neighbour.times_s(lambda: time.sleep(ALONE_S))
    p99 = {kind: float(np.quantile(found, 0.99)) for kind, found in times.items()}
    return {kind: p99[kind] / p99["alone"] for kind in ("fresh", "new", "known")}


def _run_all(session: engine.Session, inputs: Sequence[Array]) -> None:
    for each in inputs:
        session.run([each])


def measure(name: str, folder: Path, sizes: int, neighbour: Neighbour) -> dict[str, Any]:
    """Return the costs of one network."""
    network, path = OPEN_NETWORKS[name], folder / name / "model.onnx"
    starts = {}
    for is_fixed in (False, True):
        kind = "fixed" if is_fixed else "dynamic"
        with tempfile.TemporaryDirectory() as cache:
            for how in ("cold", "warm"):
                starts[f"{kind}_{how}_s"] = start_s(name, path.resolve(), Path(cache), is_fixed=is_fixed)
    sessions = [session_of(load(network, path, is_fixed=is_fixed)) for is_fixed in (False, True)]
    session = sessions[0]
    own_s = turns_s(sessions, network.input_of(network.network.shape))
    for shape in _new_shapes(network, KNOWN, SEED + 2):
        session.run([network.input_of(shape)])
    extra_s = new_size_s(network, session, sizes)
    return {
        "network": name,
        "new_size_s": median(extra_s),
        "own_shape": min(own_s[0]) / min(own_s[1]),
        "own_shape_medians": median(own_s[0]) / median(own_s[1]),
        **starts,
        "burst": bursts(network, path, session, neighbour),
    }


def report(rows: Sequence[dict[str, Any]]) -> str:
    """Return the table of all networks."""
    cells = [
        [
            row["network"],
            f"{1e6 * row['new_size_s']:.0f}",
            *(f"{row[key]:.3f}" for key in ("own_shape", "own_shape_medians")),
            *(f"{row[f'{kind}_{how}_s']:.2f}" for how in ("cold", "warm") for kind in ("dynamic", "fixed")),
            *(f"{row['burst'][kind]:.2f}" for kind in ("fresh", "new", "known")),
        ]
        for row in rows
    ]
    means = [geometric_mean([row[key] for row in rows]) for key in ("own_shape", "own_shape_medians")]
    return table(TITLES, [*cells, ["geometric mean", "", *(f"{each:.3f}" for each in means), *[""] * 7]])


def main() -> int:
    """Export what is missing, measure, print, and save where asked."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", nargs="+", default=list(OPEN_NETWORKS), choices=list(OPEN_NETWORKS))
    parser.add_argument("--sizes", type=int, default=150)
    parser.add_argument("--folder", type=Path, default=default_folder() / "random_sizes")
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/raw/NAME.json")
    options = parser.parse_args()
    export_missing([*options.networks, NEIGHBOUR], options.folder)
    network = OPEN_NETWORKS[NEIGHBOUR]
    session = session_of(load(network, options.folder / NEIGHBOUR / "model.onnx", is_fixed=True))
    neighbour = Neighbour(session, network.input_of(network.network.shape))
    rows = []
    for name in options.networks:
        rows.append(measure(name, options.folder, options.sizes, neighbour))
        print(f"{name}: measured", file=sys.stderr, flush=True)
    how = f"1 thread a session, {options.sizes} new sizes, bursts of {BURST} runs beside {NEIGHBOUR}"
    result = Result(kind="random_size_costs", machine=describe(()), how=how, body=report(rows), records=rows)
    result.publish(options.save)
    return 0


if __name__ == "__main__":
    sys.exit(main())
