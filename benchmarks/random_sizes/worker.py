"""The process of one engine. Reads one JSON object a line and answers each with one.

    first                -> {"build_s"} or {"failure"}
    {"shapes": [...]}    -> {"times_s", "bytes"}: one run for each shape, in order; memory of the process afterwards
    {"check": true}      -> {"error_share"}: largest difference from PyTorch's answers, as a share of their magnitude

Started by `benchmarks.random_sizes`, pinned to its cores before a library counts them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.measuring.contest import RIVALS, Run, error_share
from benchmarks.memory import resident_bytes
from benchmarks.random_sizes.networks import OPEN_NETWORKS
from benchmarks.record import OURS
from benchmarks.worker import answer


def main() -> None:
    """Answer until the input ends."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--engine", required=True)
    parser.add_argument("--network", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--cores", type=int, nargs="+", required=True)
    options = parser.parse_args()
    answer(options.cores, _replies(options))


def _replies(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    network = OPEN_NETWORKS[options.network]
    start = time.perf_counter()
    run = _load(options.engine, options.folder / "model.onnx", options.threads, options.backend)
    yield {"build_s": time.perf_counter() - start}
    for line in sys.stdin:
        message = json.loads(line)
        if "shapes" in message:
            times = [_seconds(run, network.input_of(shape)) for shape in message["shapes"]]
            yield {"times_s": times, "bytes": resident_bytes()}
        else:
            yield {"error_share": _error(run, options, network.network.has_columns)}


def _load(engine_name: str, path: Path, threads: int, backend: Any) -> Run:
    if engine_name == OURS:
        import engine

        session = engine.Session(engine.load(path), threads=threads, backend=backend)
        session.prepare()  # rivals load when they are made
        return session.run
    rival = RIVALS[engine_name]
    return rival.make(import_module(rival.module), path, threads)


def _seconds(run: Run, x: NDArray[Any]) -> float:
    start = time.perf_counter()
    run([x])
    return time.perf_counter() - start


def _error(run: Run, options: argparse.Namespace, has_columns: bool) -> float:
    network, worst = OPEN_NETWORKS[options.network], 0.0
    with np.load(options.folder / "answers.npz") as answers:
        for number, shape in enumerate(answers["shapes"]):
            found = run([network.input_of([int(size) for size in shape])])
            worst = max(worst, error_share(found, [answers[f"answer{number}"]], has_columns=has_columns))
    return worst


if __name__ == "__main__":
    main()
