"""Stacks of matrices cut into finer ones, as numpy's reshape has them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.compiler.lowering.batched_matrices import batch_splits, split_batch
from engine.compiler.storage import View, row_major
from engine.tensor import Array

F32 = np.dtype(np.float32)
PARTS = st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3), min_size=1, max_size=3)


@pytest.mark.parametrize(
    ("stack", "finer"),
    [((6,), (4, 2)), ((4, 3), (3, 4)), ((2, 6), (4, 3)), ((), (1,)), ((6,), ()), ((1, 6), (6,)), ((6,), (2, 3, 2))],
)
def test_what_is_no_finer_stack_is_none(stack: tuple[int, ...], finer: tuple[int, ...]) -> None:
    assert batch_splits(stack, finer) is None


def seen(view: View, values: Array) -> Array:
    """Return the numbers that a view of a row-major array stands for."""
    return np.lib.stride_tricks.as_strided(values.reshape(-1)[view.offset // 4 :], view.shape, view.meta.strides)


@given(PARTS, st.data())
def test_a_finer_stack_has_the_same_matrices(parts: list[list[int]], data: st.DataObject) -> None:
    stack, finer = [int(np.prod(part)) for part in parts], [size for part in parts for size in part]
    lead = [data.draw(st.sampled_from([size, 1])) for size in stack[data.draw(st.integers(0, len(stack))) :]]
    view = row_major((*lead, 2, 3), F32)
    values = np.arange(int(np.prod(view.shape)), dtype=F32).reshape(view.shape)
    found = seen(split_batch(view, stack, finer), values)
    wanted = np.broadcast_to(values, (*stack, 2, 3)).reshape(*finer, 2, 3)
    np.testing.assert_array_equal(np.broadcast_to(found, (*finer, 2, 3)), wanted)
