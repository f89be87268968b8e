"""Transposed convolutions of dequantised bytes: products and a pixel shuffle, with the same answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import TensorSpec
from engine.passes.quantised_transposes import quantised_transposes
from tests.engine.graph.build import built, op
from tests.engine.passes.applying import FOLDED, applied, assert_untouched, types

U8, I8, F32 = np.dtype(np.uint8), np.dtype(np.int8), np.dtype(np.float32)
PLAIN = {"stride": (2, 2), "padding": (0, 0), "output_padding": (0, 0), "dilation": (1, 1), "groups": 1}


def network(scales: int = 1, *, bias: bool = True, kernel: int = 2, **params: Any) -> Any:
    random = np.random.default_rng(3)
    groups = params.get("groups", 1)
    channels = scales if scales > 1 else 6 // groups
    constants = {
        "s": np.array(0.02, F32),
        "z": np.array(121, U8),
        "w": random.integers(-128, 128, (4, channels, kernel, kernel)).astype(I8),
        "sw": random.random(scales, F32) if scales > 1 else np.array(0.03, F32),
        "zw": np.zeros(scales, I8) if scales > 1 else np.array(3, I8),
        **({"b": random.random(channels * groups, F32)} if bias else {}),
    }
    return built(
        op("pnnx.Input", "in0", "", "x"),
        *(op("pnnx.Attribute", name, "", name, data=array) for name, array in constants.items()),
        op("DequantizeLinear", "dx", "x s z", "fx"),
        op("DequantizeLinear", "dw", "w sw zw", "fw", axis=1),
        op("F.conv_transpose2d", "it", "fx fw b" if bias else "fx fw", "y", **{**PLAIN, **params}),
        op("pnnx.Output", "out", "y"),
        _x=TensorSpec((1, 4, 3, 5), U8),
    )


@pytest.mark.parametrize("scales", [1, 6])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("size", [2, 3])
def test_blocks_are_channels_of_a_product(scales: int, bias: bool, size: int) -> None:
    x = np.random.default_rng(1).integers(0, 256, (1, 4, 3, 5)).astype(U8)
    net = network(scales, bias=bias, kernel=size, stride=(size, size))
    made = types(applied(quantised_transposes, net, x, close=FOLDED))
    assert made[-2:] == ["F.conv2d", "nn.PixelShuffle"]


@pytest.mark.parametrize(
    "params",
    [{"kernel": 3}, {"padding": (1, 1)}, {"stride": (2, 1)}, {"groups": 2}, {"kernel": 1, "stride": (1, 1)}],
    ids=str,
)
def test_windows_that_overlap_stay_as_they_are(params: Any) -> None:
    assert_untouched(quantised_transposes, network(**params))
