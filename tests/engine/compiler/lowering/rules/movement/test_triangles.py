"""Triangles of matrices, and elements within bounds, of any dtype: the reference's answers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.engine.compiler.lowering.agreeing import check, everywhere
from tests.engine.compiler.lowering.rules.elementwise.test_typed_maps import values
from tests.engine.graph.build import op

DTYPES = ["bool", "uint8", "int16", "int32", "int64", "float32", "float64"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_triangles_of_any_dtype(dtype: str) -> None:
    for shape in ((1, 1), (5, 5), (2, 3, 7, 4), (3, 1, 65)):
        x = values(dtype, shape) if dtype != "int16" else values("int32", shape).astype(dtype)
        triangles = [
            op(f"torch.{name}", f"{name}{k}", "0", f"{name}_{k}", diagonal=k)
            for name in ("tril", "triu") for k in (0, 1, -2, 100, -100)
        ]  # fmt: skip
        onnx = [op("Trilu", f"t{k}", "0", f"u{k}", upper=k) for k in (0, 1)]
        check([x], *triangles, *onnx)


@pytest.mark.parametrize("dtype", ["bool", "int16", "int64"])
def test_a_turned_matrix_has_triangles(dtype: str) -> None:
    x = (np.arange(2 * 5 * 7).reshape(2, 5, 7) % 2).astype(dtype)
    turned = op("torch.permute", "turn", "0", "turned", dims=(2, 1, 0))
    everywhere([x], turned, op("torch.tril", "it", "turned", "result", diagonal=1))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "int64", "float32", "float64"])
def test_bounds_of_which_one_is_left_out(dtype: str) -> None:
    x = values(dtype, (3, 17))
    bounds = [{"min": 1, "max": None}, {"min": None, "max": 3}, {"min": 5, "max": 2}, {"min": 1, "max": 30}]
    check([x], *(op("torch.clamp", f"it{k}", "0", f"r{k}", **each) for k, each in enumerate(bounds)))
    low, high = values(dtype, (17,)), values(dtype, (3, 1))
    check([x, low, high], op("torch.clamp", "both", "0 1 2", "result"))
    mixed = [{"min": 1.5, "max": None}, {"min": None, "max": 2.5}, {"min": 0, "max": 2.5}]
    check([x], *(op("torch.clamp", f"it{k}", "0", f"r{k}", **each) for k, each in enumerate(mixed)))
