"""Sorted order is that of Python's own stable sort, NaN behind every number; the first few and the k-th are of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from engine.layers.definition.layer import Annotations
from engine.layers.sorting.sorting import KthValue, TopK, sort_order

BOTH = Annotations(inputs=(None,), outputs=(None, None))

# Few different values, so that many are equal; NaN among the floats.
floats = npst.arrays(np.float32, st.tuples(st.integers(1, 3), st.integers(1, 24)), elements=st.sampled_from([
    -np.inf, -1.0, -0.0, 0.0, 2.5, np.inf, np.nan]))  # fmt: skip
integers = npst.arrays(np.int64, st.tuples(st.integers(1, 3), st.integers(1, 24)), elements=st.integers(-2, 2))


@given(floats | integers, st.booleans())
def test_order_is_that_of_a_stable_sort(rows: np.ndarray, descending: bool) -> None:
    for found, row in zip(sort_order(rows, 1, descending), rows, strict=True):
        keys = [(math.isnan(x), 0.0 if math.isnan(x) else x) for x in row.tolist()]
        assert found.tolist() == sorted(range(len(row)), key=keys.__getitem__, reverse=descending)


@given(floats | integers, st.data(), st.booleans())
def test_the_first_few_and_the_kth_are_of_that_order(rows: np.ndarray, data: st.DataObject, largest: bool) -> None:
    k = data.draw(st.integers(1, rows.shape[-1]))
    _, places = TopK(k=(k,), largest=largest, annotations=BOTH).forward(rows)
    np.testing.assert_array_equal(places, sort_order(rows, 1, largest)[:, :k])
    value, place = KthValue(k=k, keepdim=True).forward(rows)
    np.testing.assert_array_equal(place, sort_order(rows, 1)[:, k - 1 : k])
    np.testing.assert_array_equal(value, np.take_along_axis(rows, place, 1))


@pytest.mark.parametrize("shape", [(0, 8), (2, 0, 8)])
def test_no_rows_have_no_places(shape: tuple[int, ...]) -> None:
    values, places = TopK(k=(2,), annotations=BOTH).forward(np.zeros(shape, np.float32))
    assert values.shape == places.shape == (*shape[:-1], 2)
