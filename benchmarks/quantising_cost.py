"""Measure what quantising costs: time and memory of ``engine.quantise`` beside those of float32 runs.

    python -m benchmarks.quantising_cost [--network resnet50] [--samples 128] [--threads 2] [--folder DIR]

Each side runs in a process of its own. The float32 side runs the network on all samples. The network must have been
exported to the folder by another benchmark.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

import engine
from app.measuring.contest import Array
from benchmarks.files import Files, default_folder
from benchmarks.networks import NETWORKS


class Pictures(Sequence[list[Array]]):
    """Random inputs, each made when it is asked for."""

    def __init__(self, shape: tuple[int, ...], count: int) -> None:
        self._shape = shape
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        if index not in range(self._count):
            raise IndexError(index)
        return [np.random.default_rng(index).standard_normal(self._shape, np.float32)]


def run(side: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return seconds and peak RSS of this process after one side has run."""
    network = NETWORKS[options.network]
    graph = engine.load(Files(options.folder / network.name).onnx(1))
    samples = Pictures(network.shape, options.samples)
    start = time.perf_counter()
    figures: dict[str, Any] = {}
    if side == "float32":
        with closing(engine.Session(graph, threads=options.threads, cache=None)) as session:
            session.prepare()
            for index in range(len(samples)):
                session.run(samples[index])
    else:
        found = engine.quantise(graph, samples, threads=options.threads)
        figures = {"quantised": found.quantised_layers, "layers": len(found.layers), "kept": found.kept}
    seconds = time.perf_counter() - start
    return {"side": side, "seconds": seconds, "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            **figures}  # fmt: skip


def main() -> int:
    """Run both sides and print their figures."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--network", default="resnet50", choices=list(NETWORKS), metavar="NETWORK")
    parser.add_argument("--samples", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=default_folder(), help="of exported networks (user's cache)")
    parser.add_argument("--side", choices=("float32", "int8"), help="run this side in this process")
    options = parser.parse_args()
    if options.side:
        print(json.dumps(run(options.side, options)))
        return 0
    for side in ("float32", "int8"):
        command = [sys.executable, "-m", "benchmarks.quantising_cost", *sys.argv[1:], "--side", side]
        print(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
