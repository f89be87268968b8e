"""Pooling windows that only ONNX has: dilated averages, whose windows may lie in the padding alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import engine
from tests.engine.onnx_files.models import model, node, save, value


@pytest.mark.parametrize("backend", ["reference", "compiled"])
@pytest.mark.parametrize("sizes", [(1, 1, 1), ("d", "h", "w")], ids=["fixed", "open"])
def test_the_average_of_a_window_of_padding_alone_is_zero(
    sizes: tuple[int | str, ...], backend: str, tmp_path: Path
) -> None:
    average = node("AveragePool", ["x"], ["y"], kernel_shape=[2, 2, 2], dilations=[2, 1, 2], pads=[1] * 6)
    path = save(tmp_path, model([average], [value("x", (1, 1, *sizes))], [value("y", None)]))
    x = np.full((1, 1, 1, 1, 1), 3, np.float32)
    (y,) = engine.Session(engine.load(path), backend=backend, cache=None).run([x])
    np.testing.assert_array_equal(y, np.zeros((1, 1, 1, 2, 1), np.float32))  # as onnxruntime has it
