"""Tensors that are computed within a list are computed before it is made; numbers stay where they are."""

from __future__ import annotations

import numpy as np
import pytest

from engine import RuntimeGraph, Session, TensorSpec
from engine.passes.computed_items import computed_items
from tests.engine.graph.build import INPUT, built, op
from tests.engine.passes.applying import applied, assert_untouched, expressions

ROWS = np.array([5, 0, 7, 2, 2], np.int64)
X = np.arange(12, dtype=np.float32).reshape(4, 3)
I64 = np.dtype(np.int64)


def picking(expr: str, sources: str = "1") -> RuntimeGraph:
    """Elements of the first input where the second says."""
    return built(
        INPUT,
        op("pnnx.Input", "rows", "", "1"),
        op("pnnx.Expression", "where", sources, "2", expr=expr),
        op("Tensor.index", "pick", "0 2", "3"),
        op("pnnx.Output", "out", "3"),
        _0=(4, 3),
        _1=TensorSpec((5,), I64),
    )


@pytest.mark.parametrize(
    ("expr", "apart"),
    [
        ("[floor_divide(@0,2)]", ["floor_divide(@0,2)", "[@0]"]),
        ("[floor_divide(@0,2),remainder(@0,3)]", ["floor_divide(@0,2)", "remainder(@0,3)", "[@0,@1]"]),
        ("[None,remainder(add(@0,1),3)]", ["remainder(add(@0,1),3)", "[None,@0]"]),
        ("[remainder(@0,4),1]", ["remainder(@0,4)", "[@0,1]"]),
    ],
)
def test_a_computed_tensor_is_an_expression_of_its_own(expr: str, apart: list[str]) -> None:
    assert expressions(applied(computed_items, picking(expr), X, ROWS)) == apart


def test_what_is_apart_has_kernels() -> None:
    session = Session(picking("[floor_divide(@0,2)]"), backend="compiled")
    np.testing.assert_array_equal(session.run([X, ROWS])[0], X[ROWS // 2])
    assert not [each for each in session.describe()["operators"] if each.get("kernel") == "reference"]


@pytest.mark.parametrize("expr", ["[@0]", "[1,2]", "[None,remainder(size(@0,0),3)]"])
def test_lists_in_which_no_tensor_is_computed_stay(expr: str) -> None:
    assert_untouched(computed_items, picking(expr))
