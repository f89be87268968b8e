"""Bounds: what numpy's maximum and minimum give, and zeros keep their sign as in PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

from engine.layers.operands.bounds import at_least, at_most, clamped

X = [-np.inf, -2.5, -0.0, 0.0, 1.5, np.inf, np.nan]
dtypes = pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])


@dtypes
@pytest.mark.parametrize("bound", [-1.0, 0.0, np.inf, np.nan])
def test_one_bound_is_a_maximum_or_a_minimum(dtype: type, bound: float) -> None:
    x = np.array(X, dtype)
    np.testing.assert_array_equal(at_least(x, dtype(bound)), np.maximum(x, dtype(bound)))
    np.testing.assert_array_equal(at_most(x, dtype(bound)), np.minimum(x, dtype(bound)))


@dtypes
@pytest.mark.parametrize(("low", "high"), [(-1, 1), (1, -1), (np.nan, 1), (-1, np.nan)])
def test_of_two_bounds_the_upper_one_wins(dtype: type, low: float, high: float) -> None:
    x = np.array(X, dtype)
    expected = np.minimum(np.maximum(x, dtype(low)), dtype(high))
    np.testing.assert_array_equal(clamped(x, dtype(low), dtype(high)), expected)


def test_a_scalar_stays_an_array() -> None:
    assert isinstance(at_least(np.array(-1, np.float32), 0), np.ndarray)


def test_minus_zero_is_not_below_zero() -> None:
    assert np.signbit(at_least(np.full(40, -0.0, np.float32), 0)).all()
