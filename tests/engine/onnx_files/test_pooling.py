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


@pytest.mark.parametrize(("auto_pad", "wanted"), [("NOTSET", 6), ("VALID", 6), ("SAME_UPPER", 6)])
def test_a_last_window_that_is_cut_counts_without_padding_too(tmp_path: Path, auto_pad: str, wanted: int) -> None:
    """ONNX's shape inference and onnxruntime round up for VALID as well."""
    pool = node("MaxPool", ["x"], ["y"], kernel_shape=[3], strides=[3], ceil_mode=1, auto_pad=auto_pad)
    path = save(tmp_path, model([pool], [value("x", (1, 1, 17))], [value("y", None)]))
    x = np.arange(17, dtype=np.float32)[None, None]
    (y,) = engine.Session(engine.load(path), cache=None).run([x])
    assert y.shape == (1, 1, wanted) and y[0, 0, -1] == 16


def test_slopes_of_integers_give_integers(tmp_path: Path) -> None:
    slopes = {"s": np.array([[2, 3]], np.int32)}
    path = save(
        tmp_path, model([node("PRelu", ["x", "s"], ["y"])], [value("x", (2, 2), 6)], [value("y", None, 6)], slopes)
    )
    x = np.array([[-1, 2], [-4, 5]], np.int32)
    (y,) = engine.Session(engine.load(path), cache=None).run([x])
    assert y.dtype == np.int32 and np.array_equal(y, [[-2, 2], [-8, 5]])


@pytest.mark.parametrize("backend", ["compiled", "reference"])
def test_half_precision_of_unknown_rank_stays_half_precision(tmp_path: Path, backend: str) -> None:
    """Nothing is known of a squeezed value whose size depends on values, not even its dtype."""
    made = [
        node("Compress", ["x", "mask"], ["c"]),
        node("Squeeze", ["c"], ["y"]),
        node("MatMul", ["x", "w"], ["z"]),
    ]
    weights = {"mask": np.array([True, True, False]), "w": np.ones((4, 2), np.float16)}
    outputs = [value("y", None, 10), value("z", None, 10)]
    path = save(tmp_path, model(made, [value("x", (3, 4), 10)], outputs, weights))
    y, z = engine.Session(engine.load(path), backend=backend, cache=None).run([np.ones((3, 4), np.float16)])
    assert (y.dtype, y.shape, z.dtype) == (np.float16, (2,), np.float16)
