"""Operators that move elements between DequantizeLinear and QuantizeLinear move bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import TensorSpec
from engine.passes.byte_moves import byte_moves
from tests.engine.graph.build import built, op
from tests.engine.passes.applying import applied, assert_untouched, types

RANDOM = np.random.default_rng(6)
U8, F32 = np.dtype(np.uint8), np.dtype(np.float32)
POOL = {"kernel_size": (3, 3), "stride": (2, 2), "padding": (1, 1), "dilation": (1, 1), "ceil_mode": False}
MOVES = {
    "reshape": op("Tensor.reshape", "it", "f", "g", shape=(3, 40)),
    "permute": op("torch.permute", "it", "f", "g", dims=(2, 0, 1)),
    "slice": op("Tensor.slice", "it", "f", "g", dim=1, start=1, end=4, step=2),
    "pool": op("nn.MaxPool2d", "it", "f", "g", return_indices=False, **POOL),
}


def network(*operators: Any, scale: float = 0.02, zero: int = 121, dtype: Any = U8) -> Any:
    codes = np.random.default_rng(1).integers(0, 256, (3, 5, 8)).astype(np.uint8)
    constants = {"s": np.array(0.02, F32), "z": np.array(121, U8),
                 "s2": np.array(scale, F32), "z2": np.array(zero, dtype)}  # fmt: skip
    return built(
        op("pnnx.Input", "in0", "", "x"),
        *(op("pnnx.Attribute", name, "", name, data=array) for name, array in constants.items()),
        op("DequantizeLinear", "floats", "x s z", "f"),
        *operators,
        op("QuantizeLinear", "codes", "g s2 z2", "y"),
        op("pnnx.Output", "out", "y"),
        _x=TensorSpec(codes.shape, U8),
    ), codes


@pytest.mark.parametrize("name", MOVES)
def test_bytes_are_moved(name: str) -> None:
    net, codes = network(MOVES[name])
    made = types(applied(byte_moves, net, codes))
    assert made[-1] == "nn.Identity"
    assert made.index(MOVES[name].type) < len(made) - 1


@pytest.mark.parametrize(("scale", "zero", "dtype"), [(0.03, 121, U8), (0.02, 120, U8), (0.02, 121, np.int8)])
def test_another_scale_is_rounded_again(scale: float, zero: int, dtype: Any) -> None:
    net, codes = network(MOVES["permute"], scale=scale, zero=zero, dtype=dtype)
    made = types(applied(byte_moves, net, codes))
    assert "QuantizeLinear" in made
    assert made.index("torch.permute") < made.index("QuantizeLinear")


def test_what_computes_stays_as_it_is() -> None:
    assert_untouched(byte_moves, network(op("nn.ReLU", "it", "f", "g"))[0])
    several = op("pnnx.Expression", "it", "f f", "g", expr="add(@0,@1)")
    assert_untouched(byte_moves, network(several)[0])
