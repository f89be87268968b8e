"""Normalisations of ONNX and of onnxruntime, also in operator sets that ONNX did not have them in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from tests.engine.onnx_files.models import model, node, save, value

X = np.random.default_rng(3).standard_normal((2, 3, 8), np.float32)
SCALE = np.linspace(0.5, 1.5, 8, dtype=np.float32)


def outputs(folder: Path, proto: Any, *inputs: Any) -> list[Any]:
    return engine.Session(engine.load(save(folder, proto)), cache=None, threads=1).run(list(inputs))


def normalised(x: Any, axis: int, epsilon: float, mean: float = 0.0) -> Any:
    """Return x divided by its root mean square over the last axes."""
    wide = x.astype(np.float64) - mean
    return wide / np.sqrt((wide**2).mean(tuple(range(axis, 0)), keepdims=True) + epsilon)


@pytest.mark.parametrize("opset", [11, 17])
def test_layer_normalization_of_onnxruntime_is_older_than_that_of_onnx(tmp_path: Path, opset: int) -> None:
    made = [node("LayerNormalization", ["x", "s"], ["y"], axis=-1)]
    proto = model(made, [value("x", [2, 3, 8])], [value("y", None)], {"s": SCALE}, opset=opset)
    (found,) = outputs(tmp_path, proto, X)
    mean = X.mean(-1, keepdims=True, dtype=np.float64)
    assert np.allclose(found, normalised(X, -1, 1e-5, mean) * SCALE, atol=1e-5)


@pytest.mark.parametrize("axis", [-1, -2, 1])
def test_simplified_layer_normalization_of_several_axes_gives_the_inverse_deviation_too(
    tmp_path: Path, axis: int
) -> None:
    axis = axis if axis < 0 else axis - X.ndim
    scale = np.broadcast_to(SCALE, X.shape[axis:]).copy()
    made = [node("SimplifiedLayerNormalization", ["x", "s"], ["y", "d"], axis=axis)]
    proto = model(made, [value("x", [2, 3, 8])], [value("y", None), value("d", None)], {"s": scale}, opset=13)
    found, inverse = outputs(tmp_path, proto, X)
    assert np.allclose(found, normalised(X, axis, 1e-5) * scale, atol=1e-5)
    assert np.allclose(inverse * X, normalised(X, axis, 1e-5), atol=1e-5)


def test_statistics_of_float64_are_float32(tmp_path: Path) -> None:
    made = [node("LayerNormalization", ["x", "s"], ["y", "m", "d"])]
    results = [value("y", None, 11), value("m", None), value("d", None)]
    proto = model(made, [value("x", [2, 3, 8], 11)], results, {"s": SCALE.astype(np.float64)}, opset=17)
    found, mean, inverse = outputs(tmp_path, proto, X.astype(np.float64))
    assert (found.dtype, mean.dtype, inverse.dtype) == (np.float64, np.float32, np.float32)
    assert np.allclose(mean, X.mean(-1, keepdims=True), atol=1e-6)


@pytest.mark.parametrize("is_stored", [True, False])
@pytest.mark.parametrize("type", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_sums_that_onnxruntime_normalises_have_a_smaller_epsilon(tmp_path: Path, type: str, is_stored: bool) -> None:
    small, scale = X * np.float32(1e-3), {"s": SCALE}
    inputs = [value("x", [2, 3, 8]), *([] if is_stored else [value("s", [8])])]
    made = [node(type, ["x", "x", "s"], ["y"], domain="com.microsoft")]
    proto = model(made, inputs, [value("y", None)], scale if is_stored else {}, domains=["com.microsoft"])
    (found,) = outputs(tmp_path, proto, small, *([] if is_stored else [SCALE]))
    total = 2 * small
    mean = total.mean(-1, keepdims=True, dtype=np.float64) if type == "SkipLayerNormalization" else 0.0
    assert np.allclose(found, normalised(total, -1, 1e-12, mean) * SCALE, atol=1e-4)
