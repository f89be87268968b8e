"""Error measure between two answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from app.measuring.contest import error_share


@pytest.mark.parametrize(
    ("found", "expected", "share"),
    [
        ([[1.0, 2.0]], [[1.0, 2.5]], 0.2),
        ([[1.0, np.nan]], [[1.0, 2.0]], np.inf),
        ([[1.0, np.nan]], [[1.0, np.nan]], 0.0),
        ([[1.0, 2.0]], [[1.0, np.nan]], np.inf),
        ([[1, 2]], [[1, 9]], 0.0),
        ([[0.0]], [[0.0]], 0.0),
        ([[1.0]], [[1.0, 1.0]], np.inf),
        ([], [[1.0]], np.inf),
    ],
)
def test_error_is_the_largest_difference_by_the_largest_magnitude(found: Any, expected: Any, share: float) -> None:
    assert error_share([np.array(each) for each in found], [np.array(each) for each in expected]) == share


def test_error_is_a_share_of_the_largest_magnitude() -> None:
    assert error_share([np.array([1.0, -8.0])], [np.array([1.5, -8.0])]) == pytest.approx(0.5 / 8)


def test_columns_are_held_against_their_own_magnitude() -> None:
    expected = np.array([[1000.0, 0.5], [500.0, 0.25]])
    found = expected + [[1.0, 0.0], [0.0, 0.125]]
    assert error_share([found], [expected]) == pytest.approx(0.001)
    assert error_share([found], [expected], has_columns=True) == pytest.approx(0.25)


@pytest.mark.parametrize("found", [np.ones(3), np.array([1.0, np.nan]), np.ones((1, 2))], ids=["longer", "nan", "rank"])
def test_answer_of_another_shape_or_with_nan_is_wrong_without_limit(found: np.ndarray) -> None:
    assert error_share([found], [np.ones(2)]) == float("inf")
