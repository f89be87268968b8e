"""Padding: what is refused, and what stays open."""

from __future__ import annotations

import math
from typing import Any

import pytest

from engine import TensorSpec
from engine.tensor import UNKNOWN
from tests.engine.layers.refusals import build, refusal, tensor

IMAGE = tensor(2, 3, 4)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"pad": (1, 2, 3)}, "pad does not come in pairs: found [1, 2, 3]"),
        (
            {"pad": (1, 1), "mode": "mirror"},
            "unknown mode: found mirror, expected constant, reflect, replicate, circular",
        ),
        ({"pad": (1,) * 8}, "more axes to pad than the input has: found [2, 3, 4], expected at least 4 dimensions"),
        (
            {"pad": (4, 0), "mode": "reflect"},
            "too much padding for mode reflect: found 4 on size 4, expected at most 3",
        ),
        (
            {"pad": (-1, 4), "mode": "circular"},
            "too much padding for mode circular: found 4 on size 4, expected at most 3",
        ),
        ({"pad": (-3, -2)}, "the padding removes all elements: found -3 and -2 on size 4"),
        ({"pad": (-5, 9)}, "the padding removes all elements: found -5 and 9 on size 4"),
    ],
)
def test_padding_that_does_not_fit_is_refused(params: dict[str, Any], message: str) -> None:
    assert refusal("F.pad", IMAGE, **params) == message


@pytest.mark.parametrize(("dtype", "value"), [("int32", -math.inf), ("int64", math.nan), ("int8", 300), ("uint8", -1)])
def test_a_value_that_an_integer_dtype_does_not_hold_is_refused(dtype: str, value: float) -> None:
    """PyTorch refuses each: it cannot be converted to the type without overflow."""
    message = refusal("F.pad", tensor(2, 3, dtype=dtype), pad=(1, 1), value=value)
    assert message.startswith(f"the value does not fit {dtype}: found {value}, expected ")


def test_an_empty_axis_cannot_be_replicated() -> None:
    message = refusal("nn.ReplicationPad1d", tensor(2, 0), padding=(1, 1))
    assert message == "the padding removes all elements: found 1 and 1 on size 0"


def test_a_dynamic_amount_leaves_its_axis_dynamic() -> None:
    layer = build("F.pad", 2)
    assert layer.infer([IMAGE, [1, 0, UNKNOWN, 2]]) == TensorSpec((2, None, 5), IMAGE.dtype)
