"""A process of its own runs a model while everything it has read is cut off, written over, replaced and removed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.engine.pnnx.build import members, param, save

ROOT = Path(__file__).parents[3]
SIZE = 96
LINES = [
    f"pnnx.Input in 0 1 0 #0=(?,{SIZE})f32",
    f"nn.Linear l 1 1 0 1 bias=False in_features={SIZE} out_features={SIZE} @weight=({SIZE},{SIZE})f32",
    "pnnx.Output out 1 0 1",
]
CHILD = """
import sys
import numpy as np
import engine
session = engine.Session(engine.load(sys.argv[1]), threads=1, cache=sys.argv[2], backend=sys.argv[3])
for line in sys.stdin:
    result = session.run([np.ones((int(line), int(sys.argv[4])), np.float32)])[0]
    print(sorted(set(result.ravel().tolist())), flush=True)
"""


def weights(value: int) -> bytes:
    return members({"l.weight": (np.eye(SIZE, dtype=np.float32) * value).tobytes()})


def replace(path: Path) -> None:
    path.with_suffix(".new").write_bytes(weights(3))
    path.with_suffix(".new").replace(path)


def into_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


# What a careless hand may do, one after the other: batch to run afterwards, and what is done to every file.
ATTACKS: list[tuple[int, Callable[[Path], object]]] = [
    (2, lambda path: path.write_bytes(weights(3))),
    (1, lambda path: os.truncate(path, path.stat().st_size // 2)),
    (3, lambda path: os.truncate(path, 0)),
    (2, lambda path: path.write_bytes(bytes(100_000))),
    (4, replace),
    (1, into_pipe),
    (5, Path.unlink),
]


@pytest.mark.parametrize("backend", ["compiled", "reference"])
def test_a_process_outlives_whatever_is_done_to_its_files(backend: str, tmp_path: Path) -> None:
    """For batches it has run, and for those it has yet to compile."""
    path, cache = save(tmp_path, param(LINES), weights(2)), tmp_path / "cache"
    command = [sys.executable, "-c", CHILD, path, cache, backend, str(SIZE)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:

        def ask(batch: int) -> str:
            assert child.stdin is not None and child.stdout is not None
            child.stdin.write(f"{batch}\n")
            child.stdin.flush()
            return child.stdout.readline()

        try:
            assert ask(1) == "[2.0]\n"
            for batch, attack in ATTACKS:
                for file in [*tmp_path.glob("model.*"), *cache.glob("*")]:
                    attack(file)
                assert ask(batch) == "[2.0]\n"
        finally:
            child.kill()
