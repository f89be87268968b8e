"""Sparse tensors are read with their zeros, and refused where they lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from tests.engine.onnx_files.models import model, node, onnx, save, value


def _sparse(values: np.ndarray, places: np.ndarray, dims: list[int]) -> Any:
    tensors = [onnx.numpy_helper.from_array(each, name) for each, name in ((values, "w"), (places, "w_at"))]
    proto = model([node("MatMul", ["x", "w"], ["y"])], [value("x", [2, 3])], [value("y", [2, 2])])
    proto.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(*tensors, dims))
    return proto


@pytest.mark.parametrize("places", [np.array([1, 4]), np.array([[0, 1], [2, 0]])], ids=["counted", "by axis"])
def test_sparse_tensors_are_read_with_their_zeros(tmp_path: Path, places: np.ndarray) -> None:
    proto = _sparse(np.array([1.5, 2.5], np.float32), places, [3, 2])
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    (found,) = engine.Session(engine.load(save(tmp_path, proto)), backend="reference").run([x])
    np.testing.assert_array_equal(found, x @ np.array([[0, 1.5], [0, 0], [2.5, 0]], np.float32))


@pytest.mark.parametrize(
    ("places", "dims", "told"),
    [
        (np.array([1, 6]), [3, 2], "out of range"),
        (np.array([1, -1]), [3, 2], "out of range"),
        (np.array([[0, 1], [3, 0]]), [3, 2], "out of range"),
        (np.array([1]), [3, 2], "do not fit"),
        (np.array([1, 2]), [2**20, 2], "too large"),
        (np.array([1, 2]), [2**62, 4], "the tensor"),
        (np.array([1, 2]), [-3, 2], "not a shape"),
    ],
)
def test_sparse_tensors_that_lie_are_refused(tmp_path: Path, places: np.ndarray, dims: list[int], told: str) -> None:
    proto = _sparse(np.ones(2, np.float32), np.array([1, 4]), [3, 2])
    tensor = proto.graph.sparse_initializer[0]
    tensor.indices.CopyFrom(onnx.numpy_helper.from_array(places))
    tensor.dims[:] = dims
    with pytest.raises(engine.EngineError, match=told):
        engine.load(save(tmp_path, proto))
