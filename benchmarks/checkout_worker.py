"""Session of the checkout on the path, which runs when told to; ``checkouts.py`` starts it.

It uses only what every version of the engine has: ``engine.load`` and ``engine.Session``.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

import engine

_WARM_UPS = 3
_LEAST = 3


def main(folder: Path, given: Path, answer: Path, threads: int, cache: str) -> None:
    """Print the error of the first answer against PyTorch's, then a line of times for each line of seconds."""
    graph = engine.load(str(folder / "model.pnnx.param"), str(folder / "model.pnnx.bin"))
    inputs, wanted = [np.load(given)], np.load(answer)
    session = engine.Session(graph, backend="compiled", threads=threads, cache=cache)
    found = np.asarray(session.run(inputs)[0], np.float64)
    if found.shape != wanted.shape:
        raise SystemExit(f"{folder.name}: found {found.shape}, expected {wanted.shape}")
    for _ in range(_WARM_UPS):
        session.run(inputs)
    print(json.dumps(float(np.abs(found - wanted).max() / np.abs(wanted).max())), flush=True)
    for line in sys.stdin:
        end, times = time.perf_counter() + float(line), []
        session.run(inputs)  # a process that was stopped finds cold caches
        while len(times) < _LEAST or time.perf_counter() < end:
            start = time.perf_counter()
            session.run(inputs)
            times.append(time.perf_counter() - start)
        print(json.dumps(times), flush=True)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]), int(sys.argv[4]), sys.argv[5])
