"""Softmax: what it refuses, and properties beyond the samples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from tests.engine.layers.refusals import build, refusal, tensor


@pytest.mark.parametrize("type", ["nn.Softmax", "F.log_softmax", "nn.Softmin"])
def test_an_axis_the_input_lacks_is_refused(type: str) -> None:
    assert refusal(type, tensor(2, 3), dim=2) == "dim is out of range: found 2, expected -2 to 1"


def test_softmax2d_needs_channels() -> None:
    assert refusal("nn.Softmax2d", tensor(2, 3)) == "dim is out of range: found -3, expected -2 to 1"


@given(arrays(np.float32, array_shapes(max_dims=3, max_side=6), elements=st.floats(-300, 300, width=32)))
def test_weights_are_positive_and_sum_to_one(x: np.ndarray) -> None:
    weights = build("F.softmax", 1, dim=-1).forward([x])
    assert (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=1e-5)


@given(arrays(np.float64, (2, 5), elements=st.floats(-30, 30)), st.floats(-1e3, 1e3))
def test_a_shift_changes_nothing(x: np.ndarray, shift: float) -> None:
    softmax = build("F.softmax", 1, dim=1)
    np.testing.assert_allclose(softmax.forward([x + shift]), softmax.forward([x]), rtol=1e-9, atol=1e-12)
