"""ONNX operators: what they refuse before numpy does."""

from __future__ import annotations

import numpy as np
import pytest

from engine import EngineError
from tests.engine.layers.refusals import build, refusal, tensor


def failure(type: str, *operands: object, **params: object) -> str:
    """The message of a run, where the values decide."""
    with pytest.raises(EngineError) as caught:
        build(type, len(operands), **params).forward(list(operands))
    return str(caught.value)


def test_angles_without_a_position_are_refused() -> None:
    message = "cache does not fit: found [], expected 2 axes, as the positions"
    cache, positions, new = np.array(1.0, np.float32), np.zeros((2, 4), np.int64), np.ones((2, 4, 24), np.float32)
    counts = np.full(2, 3, np.int32), np.array(4, np.int32)
    operands = new, new, new, None, None, *counts, cache, cache, positions
    assert failure("GroupQueryAttention", *operands, num_heads=3, kv_num_heads=3, do_rotary=True) == message


def test_a_shape_beyond_all_memory_is_refused() -> None:
    message = failure("Tensor.expand", np.ones((1, 1), np.float32), sizes=(2**31, 2**31))
    assert message.startswith("the result is too large: found [2147483648, 2147483648] float32")


def test_an_index_that_picks_more_dimensions_than_numpy_can_add_in_is_refused() -> None:
    """Refuse an index with which numpy would crash the process."""
    indices, updates = [np.zeros((1,) * 33, np.int64)], np.zeros((1,) * 33, np.float32)
    message = "too many dimensions for an addition at indices: found 33, expected at most 32"
    assert failure("Tensor.index_put", np.zeros(3, np.float32), indices, updates, reduce="sum") == message


def test_a_dtype_that_an_operator_is_not_defined_for_is_refused() -> None:
    operands = [tensor(1, 1, 3, 3, dtype="bool"), tensor(1, 1, 1, 1, dtype="bool")]
    assert "has the wrong dtype" in refusal("ConvInteger", *operands)
