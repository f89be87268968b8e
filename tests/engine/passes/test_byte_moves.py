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


def coded(*operators: Any) -> Any:
    """Return a network whose result is rounded to bytes with one scale, and its input."""
    constants = {"s": np.array(0.02, F32), "z": np.array(121, U8)}
    return built(
        op("pnnx.Input", "in0", "", "x"),
        *(op("pnnx.Attribute", name, "", name, data=array) for name, array in constants.items()),
        *operators,
        op("QuantizeLinear", "codes", "g s z", "y"),
        op("pnnx.Output", "out", "y"),
        _x=TensorSpec((3, 5, 8), F32),
    ), np.random.default_rng(2).standard_normal((3, 5, 8)).astype(F32)


@pytest.mark.parametrize("name", ["reshape", "permute", "pool"])
def test_elements_are_rounded_before_they_are_reordered(name: str) -> None:
    moving = MOVES[name]
    net, x = coded(op("nn.ReLU", "before", "x", "f"), moving)
    made = types(applied(byte_moves, net, x))
    assert made.index("QuantizeLinear") < made.index(moving.type)


def test_parts_are_rounded_before_they_are_joined() -> None:
    parts = op("nn.ReLU", "a", "x", "f"), op("torch.neg", "b", "x", "h"), op("torch.cat", "it", "f h", "g", dim=1)
    made = types(applied(byte_moves, *coded(*parts)))
    assert made.count("QuantizeLinear") == 2
    assert made[-1] == "torch.cat"


def test_what_floats_are_read_of_is_rounded_where_it_was() -> None:
    moving = MOVES["permute"]
    net = built(
        op("pnnx.Input", "in0", "", "f"),
        op("pnnx.Attribute", "s", "", "s", data=np.array(0.02, F32)),
        op("pnnx.Attribute", "z", "", "z", data=np.array(121, U8)),
        moving,
        op("QuantizeLinear", "codes", "g s z", "y"),
        op("nn.ReLU", "other", "g", "h"),
        op("pnnx.Output", "out", "y"),
        op("pnnx.Output", "out2", "h"),
        _f=TensorSpec((3, 5, 8), F32),
    )
    assert_untouched(byte_moves, net)
