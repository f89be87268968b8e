"""Finding some places in sorted order gives what sorting everything would give."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from engine.layers.order.sorting import kth_places, order, top_places

# Few different values, so that many are equal; NaN among the floats.
floats = npst.arrays(np.float32, st.tuples(st.integers(1, 3), st.integers(1, 24)), elements=st.sampled_from([
    -np.inf, -1.0, -0.0, 0.0, 2.5, np.inf, np.nan]))  # fmt: skip
integers = npst.arrays(np.int64, st.tuples(st.integers(1, 3), st.integers(1, 24)), elements=st.integers(-2, 2))


@given(floats | integers, st.data())
def test_the_kth_place_is_that_of_the_sorted_row(rows: np.ndarray, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, rows.shape[-1] - 1))
    np.testing.assert_array_equal(kth_places(rows, k), order(rows, 1)[:, k])


@given(floats | integers, st.data(), st.booleans())
def test_the_top_places_are_the_first_of_the_sorted_row(rows: np.ndarray, data: st.DataObject, largest: bool) -> None:
    k = data.draw(st.integers(0, rows.shape[-1]))
    np.testing.assert_array_equal(top_places(rows, k, largest), order(rows, 1, largest)[:, :k])


@pytest.mark.parametrize("shape", [(0, 8), (2, 0, 8)])
def test_no_rows_have_no_places(shape: tuple[int, ...]) -> None:
    assert top_places(np.zeros(shape, np.float32), 2, True).shape == (*shape[:-1], 2)
