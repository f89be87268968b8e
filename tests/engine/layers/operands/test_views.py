"""Views by numbers of a file: every element they can reach is an element of the array, or they are refused."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import EngineError, ShapeError, TensorSpec
from engine.layers.operands.views import diagonal, sliding, strided
from tests.engine.layers.refusals import build

HUGE = [2**31 - 1, -(2**31), 2**32, 2**62, -(2**62), 2**63 - 1, -(2**63)]
FLAT = np.arange(24.0)
small = st.integers(-3, 12)
numbers = small | st.sampled_from(HUGE)


@given(st.lists(st.tuples(st.integers(0, 4), small), max_size=3), st.integers(-4, 26))
def test_a_view_gives_the_elements_its_formula_names_or_is_refused(dims: list[tuple[int, int]], offset: int) -> None:
    size, stride = [n for n, _ in dims], [step for _, step in dims]
    places = [offset + sum(i * s for i, s in zip(index, stride, strict=True)) for index in product(*map(range, size))]
    if offset >= 0 and all(0 <= place < FLAT.size for place in places):
        assert strided(FLAT, size, stride, offset).ravel().tolist() == [FLAT[place] for place in places]
    else:
        with pytest.raises(ShapeError):
            strided(FLAT, size, stride, offset)


@given(st.lists(numbers, max_size=3), st.lists(numbers, max_size=3), numbers)
def test_as_strided_reads_its_own_elements_or_is_refused(size: list[int], stride: list[int], offset: int) -> None:
    try:
        layer = build("torch.as_strided", 1, size=tuple(size), stride=tuple(stride), storage_offset=offset)
        found = layer.forward([FLAT])
    except EngineError:
        return
    assert found.shape == tuple(size)
    assert np.isin(found.ravel()[:100], FLAT).all()


@pytest.mark.parametrize("offset", [*HUGE, 0, 2, 4, 5, -2, -3, -4])
@pytest.mark.parametrize("type", ["torch.diag", "torch.diagonal", "aten::diagonal"])
def test_a_diagonal_beyond_the_matrix_is_empty(type: str, offset: int) -> None:
    matrix = np.arange(12.0).reshape(3, 4)
    layer = build(type, 1, **{"diagonal" if type == "torch.diag" else "offset": offset})
    expected = [matrix[i, i + offset] for i in range(3) if 0 <= i + offset < 4]
    assert layer.infer([TensorSpec(matrix.shape, matrix.dtype)]).shape == (len(expected),)
    assert layer.forward([matrix]).tolist() == expected
    assert diagonal(matrix.T, -offset, 0, 1).tolist() == expected


@pytest.mark.parametrize("extent", [13, *HUGE])
def test_windows_longer_than_the_axis_are_refused(extent: int) -> None:
    with pytest.raises(ShapeError):
        sliding(FLAT.reshape(2, 12), (extent,), (1,))
