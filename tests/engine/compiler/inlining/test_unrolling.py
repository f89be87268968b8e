"""Loops, scans and maps with known trip counts are unrolled, with the same results as the reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from tests.engine.compiler.inlining.loops import random_loop, random_scan, random_sequences
from tests.engine.onnx_files.models import save

pytest.importorskip("llvmlite")
BODIED = {"onnx.Loop", "onnx.Scan", "onnx.SequenceMap", "onnx.If"}


def sessions(folder: Path, proto: Any) -> tuple[engine.Session, engine.Session]:
    graph = engine.load(save(folder, proto))
    return engine.Session(graph, "compiled", 1, cache=None), engine.Session(graph, "reference")


def assert_same(ours: engine.Session, reference: engine.Session, inputs: list[Any]) -> None:
    try:
        wanted = reference.run(inputs)
    except engine.EngineError as refusal:
        with pytest.raises(type(refusal)):
            ours.run(inputs)
        return
    for mine, theirs in zip(ours.run(inputs), wanted, strict=True):
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


def left(ours: engine.Session) -> set[str]:
    """Return the types of operators that the reference runs."""
    return {row["type"] for row in ours.describe()["operators"] if row.get("kernel") == "reference"}


@pytest.mark.parametrize("seed", range(14))
def test_loops_mean_what_the_reference_says(tmp_path: Path, seed: int) -> None:
    ours, reference = sessions(tmp_path, random_loop(seed))
    for rows in (1, 3):
        x = np.linspace(-1, 2, 3 * rows, dtype=np.float32).reshape(rows, 3)
        assert_same(ours, reference, [x])
        assert not left(ours) & BODIED


@pytest.mark.parametrize("seed", range(6))
def test_scans_mean_what_the_reference_says(tmp_path: Path, seed: int) -> None:
    ours, reference = sessions(tmp_path, random_scan(seed))
    for rows in (3, 1):
        assert_same(ours, reference, [np.linspace(-1, 2, 3 * rows, dtype=np.float32).reshape(rows, 3)])
        assert not left(ours) & BODIED


@pytest.mark.parametrize("seed", range(6))
def test_sequences_mean_what_the_reference_says(tmp_path: Path, seed: int) -> None:
    proto = random_sequences(seed)
    ours, reference = sessions(tmp_path, proto)
    rows = proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value
    assert_same(ours, reference, [np.linspace(-1, 2, 3 * rows, dtype=np.float32).reshape(rows, 3)])
    assert not left(ours)
