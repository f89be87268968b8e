"""Signed codes that only DequantizeLinear reads become unsigned, and represent the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine import RuntimeGraph, TensorSpec
from engine.passes.unsigned_codes import unsigned_codes
from tests.engine.graph.build import built, op
from tests.engine.passes.applying import applied, assert_untouched

F32, I8 = np.dtype(np.float32), np.dtype(np.int8)
X = np.random.default_rng(3).standard_normal((2, 6, 4)).astype(F32) * 5
CODES = op("QuantizeLinear", "codes", "x s z", "q")
FLOATS = op("DequantizeLinear", "floats", "q s z", "y")


def network(*operators: Any, zero: Any = -5, outputs: str = "y") -> RuntimeGraph:
    constants = {"s": np.array(0.04, F32), "z": np.array(zero, I8), "other": np.array(-6, I8)}
    return built(
        op("pnnx.Input", "in0", "", "x"),
        *(op("pnnx.Attribute", name, "", name, data=array) for name, array in constants.items()),
        *operators,
        *(op("pnnx.Output", f"out_{name}", name) for name in outputs.split()),
        _x=TensorSpec(X.shape, F32),
    )


def dtypes(graph: RuntimeGraph) -> list[str]:
    return [each.outputs[0].spec.dtype.name for each in graph.operators
            if each.type == "QuantizeLinear" and each.outputs[0].spec is not None]  # fmt: skip


def test_codes_are_unsigned() -> None:
    for zero in (-128, -5, 127):
        assert dtypes(applied(unsigned_codes, network(CODES, FLOATS, zero=zero), X)) == ["uint8"]


def test_codes_are_moved_on_their_way() -> None:
    turn = op("torch.permute", "turn", "q", "t", dims=(1, 0, 2))
    part = op("torch.chunk", "part", "t", "a b", chunks=2, dim=2)
    first, second = (op("DequantizeLinear", f"floats_{each}", f"{each} s z", f"{each}f") for each in "ab")
    graph = network(CODES, turn, part, first, second, outputs="af bf")
    assert dtypes(applied(unsigned_codes, graph, X)) == ["uint8"]


def test_codes_that_others_read_stay_signed() -> None:
    assert_untouched(unsigned_codes, network(CODES, FLOATS, outputs="y q"))
    assert_untouched(
        unsigned_codes, network(CODES, FLOATS, op("Tensor.to", "cast", "q", "i", dtype="torch.int"), outputs="y i")
    )
    assert_untouched(unsigned_codes, network(CODES, op("DequantizeLinear", "floats", "q s other", "y")))
