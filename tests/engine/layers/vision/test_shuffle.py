"""Moves between channels and space: what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from engine import TensorSpec
from tests.engine.layers.refusals import build, refusal, tensor


@pytest.mark.parametrize(
    ("type", "params", "message"),
    [
        ("nn.PixelShuffle", {"upscale_factor": 0}, "upscale_factor must be positive: found 0"),
        ("nn.PixelShuffle", {"upscale_factor": 4}, "channels cannot be divided: found 8, expected a multiple of 16"),
        ("nn.PixelUnshuffle", {"downscale_factor": 2}, "width cannot be divided: found 5, expected a multiple of 2"),
        ("nn.PixelUnshuffle", {"downscale_factor": 3}, "height cannot be divided: found 4, expected a multiple of 3"),
        ("nn.ChannelShuffle", {"groups": 3}, "channels cannot be divided: found 8, expected a multiple of 3"),
    ],
)
def test_what_cannot_be_divided_is_refused(type: str, params: dict[str, Any], message: str) -> None:
    assert refusal(type, tensor(1, 8, 4, 5), **params) == message


def test_too_few_dimensions_are_refused() -> None:
    message = refusal("F.pixel_shuffle", tensor(4, 5), upscale_factor=2)
    assert message == "input has too few dimensions: found [4, 5], expected at least 3"


def test_dynamic_dimensions_stay_dynamic() -> None:
    layer = build("F.pixel_shuffle", 1, upscale_factor=2)
    dtype = tensor(1).dtype
    assert layer.infer([TensorSpec((None, 8, None, 5), dtype)]) == TensorSpec((None, 2, None, 10), dtype)
