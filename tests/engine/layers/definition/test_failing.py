"""Exceptions of numpy inside a layer: errors of the operands if only these can cause them, else of the layer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from engine.errors import ExecutionError, ShapeError
from engine.layers.definition.bound import unforeseen
from tests.engine.layers.refusals import build

RECORDS = np.zeros(3, "i4,f4")
ONES = np.ones((1,) * 64)


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda: RECORDS + RECORDS, "the operation is not defined for operands of these dtypes"),
        (lambda: np.frexp(np.ones(3, complex)), "the operation is not defined for operands of these dtypes"),
        (lambda: np.empty(2**48), "there is not enough memory to compute the result of these operands"),
        (lambda: int(np.float32("inf")), "a number among the operands is out of range"),
        (lambda: np.int64(10**30), "a number among the operands is out of range"),
        (lambda: np.linalg.inv(np.zeros((2, 2))), "linear algebra failed for a matrix (Singular matrix)"),
    ],
)
def test_what_numpy_refuses_is_told_of_the_operands(call: Callable[[], object], problem: str) -> None:
    with pytest.raises(Exception) as caught:
        call()
    error = unforeseen(caught.value, [np.zeros((2, 3), np.float32), 5])  # type: ignore[arg-type]
    assert (type(error), str(error)) == (ShapeError, f"{problem}: found [2, 3] float32, [] int64")


def test_numpy_computes_with_fewer_dimensions_than_it_stores() -> None:
    with pytest.raises(RuntimeError) as caught:
        np.broadcast(ONES, ONES)
    error = unforeseen(caught.value, [ONES])
    assert str(error).startswith("an operand has too many dimensions: found [1, 1, 1, ")


@pytest.mark.parametrize("exc", [AttributeError("shape"), KeyError(3), ZeroDivisionError("by zero"), ValueError("why")])
def test_anything_else_is_a_fault_of_the_layer(exc: Exception) -> None:
    assert type(unforeseen(exc, [])) is ExecutionError


@pytest.mark.parametrize(("type_", "params"), [("torch.einsum", {"equation": each}) for each in ("i,j->ij", "i,i->i")])
def test_any_of_many_operands_that_is_not_a_tensor_is_named_by_its_place(type_: str, params: dict[str, str]) -> None:
    layer = build(type_, 2, **params)
    with pytest.raises(ShapeError) as caught:
        layer.forward([np.ones(3, np.float32), None])
    assert str(caught.value) == "operand '1' is not a tensor: found NoneType, expected a tensor"
