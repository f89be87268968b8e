"""Covariances: what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.errors import ExecutionError
from engine.layers.reduction.covariance import Correlation, Covariance
from engine.tensor import BFLOAT16
from tests.engine.layers.refusals import refusal, tensor

ROWS = "the variables must be the rows of a matrix: found "
WEIGHTS = "the weights do not fit the observations: found "


@pytest.mark.parametrize(
    ("type", "operands", "message"),
    [
        (
            "aten::cov",
            [tensor(2, 3, 4)],
            ROWS + "[2, 3, 4], expected at most 2 dims",
        ),
        ("aten::cov", [tensor(2, 3, dtype="bool")], "not defined for this dtype: found bool, expected numbers"),
        ("aten::cov", [tensor(2, 3), 1, tensor(2, dtype="int64")], WEIGHTS + "[2], expected [3]"),
        ("aten::cov", [tensor(2, 3), 1, tensor(3, dtype="int64"), tensor(1, 3)], WEIGHTS + "[1, 3], expected [3]"),
        ("aten::corrcoef", [tensor(1, 2, 3)], ROWS + "[1, 2, 3], expected at most 2 dims"),
    ],
)
def test_what_does_not_fit_is_refused(type: str, operands: list[Any], message: str) -> None:
    assert refusal(type, *operands) == message


def test_weights_that_sum_to_zero_are_refused() -> None:
    with pytest.raises(ExecutionError, match="the weights of the observations sum to zero"):
        Covariance().forward(np.ones((2, 3), np.float32), np.zeros(3, np.int64))


def test_a_correlation_of_half_numbers_is_one_of_them() -> None:
    x = np.array([[1, 2, 4], [2, 1, 0.5]], BFLOAT16)
    found = Correlation().forward(x)
    assert found.dtype == BFLOAT16
    np.testing.assert_allclose(found.astype(np.float64), np.corrcoef(x.astype(np.float64)), atol=1e-2)
