"""Quantised element-wise operators, pools and concatenation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from engine.errors import ParameterError
from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import MICROSOFT, translates
from engine.onnx.translation.value import Value
from engine.onnx.translators.microsoft.products import first, standard
from engine.onnx.translators.pooling import average_pool, global_pool
from engine.tensor import Array


def real(node: Node, x: Value, scale: Value | None, zero: Value | None) -> Value:
    """Dequantise a value."""
    if scale is None:
        raise ParameterError("a scale is missing")
    operands = [x, scale] + ([] if zero is None else [zero])
    return node.builder.add("DequantizeLinear", node.name, operands)[0]


def quantised(node: Node, y: Value, scale: Value | None, zero: Value | None) -> Value:
    """Quantise a value."""
    if scale is None:
        raise ParameterError("a scale is missing")
    operands = [y, scale] + ([] if zero is None else [zero])
    return node.builder.add("QuantizeLinear", node.name, operands, outputs=node.outputs[:1])[0]


def real_array(codes: Array, scale: Array, zero: Array | None) -> Array:
    """Dequantise a stored array; scale and zero point have one element, or one per column."""
    wide = codes.astype(np.float32) - (np.float32(0) if zero is None else zero.astype(np.float32))
    return np.asarray(wide * scale.astype(np.float32), np.float32)


def columns(node: Node, x: Value, scale: Value | None, zero: Value | None) -> Value:
    """Dequantise a value whose scale may have one element per column."""
    if scale is None:
        raise ParameterError("a scale is missing")
    operands = [x, scale] + ([] if zero is None else [zero])
    return node.builder.add("DequantizeLinear", node.name, operands, params={"axis": -1})[0]


@translates("QLinearSoftmax", domain=MICROSOFT)
def quantised_softmax(node: Node) -> Value | None:
    """Dequantise, apply softmax, quantise."""
    x = real(node, node.input(0), node.optional(1), node.optional(2))
    if node.number("opset", 13) < 13 or node.number("axis", -1) < -(x.rank or 1):
        return None
    return quantised(node, node.make("nn.Softmax", x, dim=node.number("axis", -1)), node.input(3), node.optional(4))


_PAIRS = {"QLinearAdd": "add", "QLinearMul": "mul"}


@translates(*_PAIRS, domain=MICROSOFT)
def quantised_pair(node: Node) -> Value:
    """Dequantise, compute, quantise."""
    a = real(node, node.input(0), node.optional(1), node.optional(2))
    b = real(node, node.input(3), node.optional(4), node.optional(5))
    y = node.expression(f"{_PAIRS[node.type]}(@0,@1)", a, b)
    return quantised(node, y, node.optional(6), node.optional(7))


def _quantised_activation(type: str, **params: Any) -> Callable[[Node], Value]:
    def translator(node: Node) -> Value:
        x = real(node, node.input(0), node.optional(1), node.optional(2))
        given: dict[str, Any] = {key: node.real(name, default) for key, (name, default) in params.items()}
        return quantised(node, node.make(type, x, **given), node.optional(3), node.optional(4))

    return translator


translates("QLinearSigmoid", domain=MICROSOFT)(_quantised_activation("nn.Sigmoid"))
translates("QLinearLeakyRelu", domain=MICROSOFT)(_quantised_activation("nn.LeakyReLU", negative_slope=("alpha", 0.01)))


@translates("QLinearGlobalAveragePool", domain=MICROSOFT)
def quantised_average(node: Node) -> Value | None:
    """Dequantise, average each channel, quantise."""
    if node.number("channels_last", 0):
        return None
    x = real(node, node.input(0), node.optional(1), node.optional(2))
    y = first(global_pool(standard(node, "GlobalAveragePool", ("channels_last",), [x])))
    return quantised(node, y, node.optional(3), node.optional(4))


@translates("QLinearAveragePool", domain=MICROSOFT)
def quantised_average_pool(node: Node) -> Value | None:
    """Dequantise, average each window, quantise."""
    if node.number("channels_last", 0):
        return None
    x = real(node, node.input(0), node.optional(1), node.optional(2))
    y = first(average_pool(standard(node, "AveragePool", ("channels_last",), [x])))
    return quantised(node, y, node.optional(3), node.optional(4))


@translates("QLinearConcat", domain=MICROSOFT)
def quantised_concat(node: Node) -> Value:
    """Dequantise, concatenate, quantise with one scale."""
    rows = range(2, len(node.inputs) - 2, 3)
    parts = [real(node, node.input(k), node.optional(k + 1), node.optional(k + 2)) for k in rows]
    y = node.make("torch.cat", *parts, dim=node.number("axis", 0))
    return quantised(node, y, node.optional(0), node.optional(1))


@translates("QuantizeLinear", "DequantizeLinear", domain=MICROSOFT)
def as_it_is(node: Node) -> list[Value]:
    """Translate to the standard operator."""
    return node.same()
