"""What numpy raises inside a layer: an error of the operands where it can be nothing else, else the layer's fault."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from engine.errors import ExecutionError, ShapeError
from engine.layers.definition.failing import unforeseen

RECORDS = np.zeros(3, "i4,f4")
ONES = np.ones((1,) * 64)


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda: np.ones(3) + np.ones(4), "operands do not fit each other"),
        (lambda: np.ones((3, 4)) @ np.ones((3, 4)), "operands do not fit each other"),
        (lambda: RECORDS + RECORDS, "operands of these dtypes cannot be computed with"),
        (lambda: np.ones(3, bool) - np.ones(3, bool), "operands of these dtypes cannot be computed with"),
        (lambda: np.empty((2**62, 2)), "what is computed of these operands is too large"),
        (lambda: np.empty(2**48), "what is computed of these operands is too large"),
        (lambda: ONES[None], "what is computed of these operands is too large"),
        (lambda: np.empty(0).max(), "there are no elements to choose from"),
        (lambda: int(np.float32("nan")), "a number among the operands is out of range"),
        (lambda: int(np.float32("inf")), "a number among the operands is out of range"),
        (lambda: np.int64(10**30), "a number among the operands is out of range"),
        (lambda: np.ones(3)[np.ones(2)], "an index must be of integers"),
    ],
)
def test_what_numpy_refuses_is_told_of_the_operands(call: Callable[[], object], problem: str) -> None:
    with pytest.raises(Exception) as caught:
        call()
    error = unforeseen(caught.value, [np.zeros((2, 3), np.float32), 5])  # type: ignore[arg-type]
    assert (type(error), str(error)) == (ShapeError, f"{problem}: found [2, 3] float32, [] int64")


@pytest.mark.parametrize("exc", [AttributeError("shape"), KeyError(3), ZeroDivisionError("by zero"), ValueError("why")])
def test_anything_else_is_a_fault_of_the_layer(exc: Exception) -> None:
    assert type(unforeseen(exc, [])) is ExecutionError
