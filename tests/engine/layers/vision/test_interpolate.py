"""Resampling: what is refused, and how a factor is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import TensorSpec
from engine.layers.vision.interpolate import as_written
from tests.engine.layers.refusals import build, refusal, tensor

IMAGE = tensor(1, 3, 4, 5)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"size": 4, "mode": "area"},
            "unknown mode: found area, expected nearest, nearest-exact, linear, bilinear, trilinear, bicubic",
        ),
        ({}, "size and scale_factor: found neither, expected one of them"),
        ({"size": 4, "scale_factor": 2.0}, "size and scale_factor: found both, expected one of them"),
        ({"scale_factor": (1.0, -2.0)}, "scale_factor must be positive: found [1.0, -2.0]"),
        (
            {"scale_factor": (1.0,) * 3},
            "scale_factor does not fit the input: found [1.0, 1.0, 1.0], expected 2 factors",
        ),
        ({"scale_factor": 0.1}, "cannot resample to this size: found [0, 0], expected 2 positive sizes"),
        ({"size": (2, 2, 2)}, "cannot resample to this size: found [2, 2, 2], expected 2 positive sizes"),
        ({"size": 4, "mode": "linear"}, "input has the wrong number of dimensions: found [1, 3, 4, 5], expected 3"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(params: dict[str, Any], message: str) -> None:
    assert refusal("F.interpolate", IMAGE, **params) == message


def test_integers_beyond_uint8_are_refused() -> None:
    message = refusal("F.upsample_nearest", tensor(1, 3, 4, 5, dtype="int64"), size=4)
    assert message == "input has the wrong dtype: found int64, expected floating or uint8"


def test_an_empty_input_is_refused() -> None:
    message = refusal("F.upsample_nearest", tensor(1, 3, 0, 5), size=4)
    assert message == "input is empty: found [1, 3, 0, 5]"


def test_another_number_of_operands_is_refused() -> None:
    message = refusal("aten::_upsample_bilinear2d_aa", IMAGE, [2, 2], False)
    assert "no schema has this number of operands" in message


def test_dynamic_dimensions_stay_dynamic() -> None:
    layer = build("F.upsample", 1, scale_factor=(2.0, 0.5), mode="bilinear")
    assert layer.infer([TensorSpec((None, 3, None, 5), IMAGE.dtype)]) == TensorSpec((None, 3, None, 2), IMAGE.dtype)


@given(st.integers(1, 1000), st.integers(1, 1000))
def test_fractions_survive_their_rounding_to_float32(numerator: int, denominator: int) -> None:
    assert as_written(float(np.float32(numerator / denominator))) == numerator / denominator


@given(st.floats(1e-3, 1e3))
def test_a_factor_is_never_moved_further_than_float32_rounds(factor: float) -> None:
    assert np.float32(as_written(factor)) == np.float32(factor)
