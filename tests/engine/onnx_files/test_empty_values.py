"""Tensors without elements: they share memory with nothing, and what is computed of them is what ONNX says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from tests.engine.onnx_files.empty_graphs import random_graph
from tests.engine.onnx_files.models import expected, model, node, save, value
from tests.nightly import IS_NIGHTLY

BACKENDS = "compiled", "reference"


def answers(folder: Path, proto: Any, feeds: dict[str, Any], backend: str) -> list[Any]:
    session = engine.Session(engine.load(save(folder, proto)), backend=backend, threads=1, cache=None)
    session.run(feeds)
    return list(session.run(feeds))  # the second run finds what the first one left


def assert_same(found: list[Any], wanted: list[Any]) -> None:
    assert [each.shape for each in found] == [each.shape for each in wanted]
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("sizes", [(0, 16), (16, 0), (0, 4000), (0, 0, 16)])
def test_an_empty_part_of_a_split_beside_its_operand(tmp_path: Path, sizes: tuple[int, ...], backend: str) -> None:
    parts = [f"p{k}" for k in range(len(sizes))]
    nodes = [node("Relu", ["x"], ["y"]), node("Split", ["y", "sizes"], parts, axis=0)]
    outputs = [value(name, None) for name in ("y", *parts)]
    proto = model(nodes, [value("x", [sum(sizes)])], outputs, {"sizes": np.array(sizes)}, opset=13)
    x = np.arange(sum(sizes), dtype=np.float32)
    ends = np.cumsum([0, *sizes])
    wanted = [x, *(x[first:end] for first, end in zip(ends, ends[1:], strict=False))]
    assert_same(answers(tmp_path, proto, {"x": x}, backend), wanted)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("order", [("z", "y"), ("y", "z")])
def test_an_empty_slice_beside_its_operand(tmp_path: Path, order: tuple[str, str], backend: str) -> None:
    nodes = [node("Relu", ["x"], ["y"]), node("Slice", ["y", "from", "to", "axis"], ["z"])]
    weights = {"from": np.array([5]), "to": np.array([5]), "axis": np.array([2])}
    proto = model(nodes, [value("x", [3, 4, 5])], [value(name, None) for name in order], weights, opset=13)
    x = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    wanted = {"y": x, "z": x[:, :, 5:5]}
    assert_same(answers(tmp_path, proto, {"x": x}, backend), [wanted[name] for name in order])


@pytest.mark.parametrize("first", range(0, 40 if not IS_NIGHTLY else 2000, 10))
def test_random_graphs_of_empty_tensors_agree_with_onnx(tmp_path: Path, first: int) -> None:
    for seed in range(first, first + 10):
        proto, feeds = random_graph(seed)
        wanted = expected(proto, feeds)
        for backend in BACKENDS:
            try:
                found = answers(tmp_path, proto, feeds, backend)
            except engine.CompileError as error:
                assert "no operator of the graph has a kernel" in str(error)
                continue
            assert_same(found, wanted)
