"""Products of bytes, with all that joins their kernels, give the same bytes at every processor level."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from engine import RuntimeGraph, Session, TensorSpec
from engine.compiler import CompiledGraph
from engine.compiler.codegen.host import describe, detect
from engine.options import Options
from engine.passes import optimise
from engine.pnnx import Operator
from tests.engine.compiler.kernels.running import LEVELS
from tests.engine.graph.build import F32, built, op

HOSTS = [*map(describe, LEVELS), detect()]
POOL = {"kernel_size": (3, 3), "stride": (2, 2), "padding": (1, 1), "dilation": (1, 1), "ceil_mode": False}


class Network:
    """Operators of a network whose operands are all quantised."""

    def __init__(self, dtype: Any) -> None:
        self.operators: list[Operator] = [op("pnnx.Input", "in0", "", "x")]
        self.dtype = dtype
        self.random = np.random.default_rng(12)

    def constant(self, name: str, array: Any) -> str:
        self.operators.append(op("pnnx.Attribute", name, "", name, data=array))
        return name

    def coded(self, name: str, scale: float, zero: int) -> str:
        """Round an operand to bytes and dequantise it; return the name."""
        step = self.constant(f"{name}_s", np.array(scale, F32))
        middle = self.constant(f"{name}_z", np.array(zero, self.dtype))
        self.operators.append(op("QuantizeLinear", f"{name}_q", f"{name} {step} {middle}", f"{name}_q"))
        self.operators.append(op("DequantizeLinear", f"{name}_d", f"{name}_q {step} {middle}", f"{name}_d"))
        return f"{name}_d"

    def layer(self, type: str, name: str, x: str, shape: tuple[int, ...], **params: Any) -> str:
        """Add a layer with weights of bytes; return the name of its result."""
        codes = self.random.integers(-127, 128, shape).astype(np.int8)
        scales = (self.random.random(shape[0]) / np.prod(shape[1:]) ** 0.5 / 60).astype(F32)
        for each, array in (("w", codes), ("ws", scales), ("wz", np.zeros(shape[0], np.int8)),
                            ("b", self.random.standard_normal(shape[0]).astype(F32))):  # fmt: skip
            self.constant(f"{name}_{each}", array)
        self.operators.append(op("DequantizeLinear", f"{name}_f", f"{name}_w {name}_ws {name}_wz", f"{name}_f", axis=0))
        self.operators.append(op(type, name, f"{x} {name}_f {name}_b", name, **params))
        return name

    def then(self, type: str, name: str, inputs: str, **params: Any) -> str:
        self.operators.append(op(type, name, inputs, name, **params))
        return name


def network(dtype: Any) -> RuntimeGraph:
    """Return convolutions of all kinds, a residual, a pool, and a linear layer."""
    net, zero = Network(dtype), 0 if dtype == np.uint8 else -128
    conv = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    net.layer("F.conv2d", "first", net.coded("x", 0.03, zero + 115), (20, 3, 3, 3), **conv)
    net.then("nn.ReLU", "a", "first")
    pooled = net.then("nn.MaxPool2d", "pool", net.coded("a", 0.02, zero), return_indices=False, **POOL)
    floats = net.coded(pooled, 0.02, zero)
    net.layer("F.conv2d", "each", floats, (20, 1, 3, 3), **{**conv, "groups": 20})
    net.layer("F.conv2d", "last", net.coded("each", 0.03, zero + 120), (20, 20, 1, 1), **{**conv, "padding": (0, 0)})
    net.then("pnnx.Expression", "sum", f"{net.coded('last', 0.03, zero + 99)} {floats}", expr="add(@0,@1)")
    net.then("nn.ReLU", "b", "sum")
    net.then("torch.flatten", "flat", net.coded("b", 0.02, zero), start_dim=1, end_dim=-1)
    net.layer("F.linear", "head", net.coded("flat", 0.02, zero), (17, 20 * 5 * 4))
    operators = [*net.operators, op("QuantizeLinear", "end", "head x_s x_z", "y"), op("pnnx.Output", "out", "y")]
    return built(*operators, _x=TensorSpec((1, 3, 9, 7), F32))


def attention(dtype: Any) -> RuntimeGraph:
    """Return products of two tensors: of queries and keys, and of scores and values."""
    net, zero = Network(dtype), 0 if dtype == np.uint8 else -128
    given = net.coded("x", 0.03, zero + 115)
    for each in ("q", "k", "v"):
        net.layer("F.linear", each, given, (3 * 13, 18))
        net.then(
            "Tensor.reshape", f"{each}r", net.coded(each, 0.02, zero + 120 + len(net.operators)), shape=(19, 3, 13)
        )
        net.then("Tensor.permute", f"{each}p", f"{each}r", dims=(1, 2, 0) if each == "k" else (1, 0, 2))
    net.then("torch.matmul", "scores", "qp kp")
    weights = net.coded("scores", 0.05, zero + 100)
    net.then("torch.matmul", "sums", f"{weights} vp")
    operators = [*net.operators, op("QuantizeLinear", "end", "sums x_s x_z", "y"), op("pnnx.Output", "out", "y")]
    return built(*operators, _x=TensorSpec((19, 18), F32))


def around(dtype: Any, batch: int = 1) -> RuntimeGraph:
    """Return convolutions whose images have a zero point other than 0 around them, and a concatenation of images."""
    net, zero = Network(dtype), 0 if dtype == np.uint8 else -128
    conv = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    net.layer("F.conv2d", "first", net.coded("x", 0.03, zero + 115), (20, 3, 3, 3), **conv)
    net.then("F.silu", "a", "first")
    net.layer(
        "F.conv2d", "each", net.coded("a", 0.02, zero + 40), (20, 1, 5, 5), **{**conv, "padding": (2, 2), "groups": 20}
    )
    net.then("F.silu", "b", "each")
    net.layer("F.conv2d", "dense", net.coded("b", 0.02, zero + 30), (12, 20, 3, 3), **conv)
    net.then("F.silu", "c", "dense")
    net.then("torch.cat", "both", "b c", dim=1)
    net.layer("F.conv2d", "last", net.coded("both", 0.02, zero + 35), (9, 32, 3, 3), **{**conv, "stride": (2, 2)})
    operators = [*net.operators, op("QuantizeLinear", "end", "last x_s x_z", "y"), op("pnnx.Output", "out", "y")]
    return built(*operators, _x=TensorSpec((batch, 3, 9, 7), F32))


def answers(graph: RuntimeGraph, x: Any) -> Iterator[Any]:
    for host in HOSTS:
        yield CompiledGraph(graph, Options(threads=2), host).run([x])[0]


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize(("make", "shape"), [(network, (1, 3, 9, 7)), (attention, (19, 18)), (around, (1, 3, 9, 7))])
def test_bytes_are_the_same_at_every_level(make: Any, shape: tuple[int, ...], dtype: Any) -> None:
    graph, _ = optimise(make(dtype))
    assert not {"torch.matmul", "F.conv2d", "F.linear"} & {each.type for each in graph.operators}
    for seed in range(4):
        x = np.random.default_rng(seed).standard_normal(shape).astype(F32)
        first, *others = answers(graph, x)
        assert len(set(first.reshape(-1).tolist())) > 5
        for each in others:
            np.testing.assert_array_equal(each, first)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_borders_of_a_zero_point_are_the_padding_of_the_reference(dtype: Any, batch: int) -> None:
    graph, _ = optimise(around(dtype, batch))
    session = Session(graph, backend="compiled", cache=None)
    for seed in range(3):  # memory that other tensors used
        x = np.random.default_rng(seed).standard_normal((batch, 3, 9, 7)).astype(F32)
        (wanted,) = Session(graph, backend="reference", cache=None).run([x])
        np.testing.assert_array_equal(session.run([x])[0], wanted)


def test_kernels_write_into_images_with_a_zero_point_around_them() -> None:
    graph, _ = optimise(around(np.uint8))
    kernels = Session(graph, backend="compiled", cache=None).run([np.ones((1, 3, 9, 7), F32)], profile=True).kernels
    layers = {"each/sums", "dense/sums"} if detect().has_vnni else {"each/sums"}
    assert [row["kernel"] for row in kernels if row["operators"][0] in layers and row["kernel"] == "map"] == []
