"""Quantisation and dequantisation of values and stored arrays."""

from __future__ import annotations

import numpy as np

from engine.errors import ParameterError
from engine.onnx.translation.node import Node
from engine.onnx.translation.value import Value
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


def codes_of(rows: Array, bits: int) -> Array:
    """Unpack codes of a few bits from bytes, lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return np.asarray(((rows[..., None] >> shifts) & np.uint8((1 << bits) - 1)).reshape(len(rows), -1))


def columns(node: Node, x: Value, scale: Value | None, zero: Value | None) -> Value:
    """Dequantise a value whose scale may have one element per column."""
    if scale is None:
        raise ParameterError("a scale is missing")
    operands = [x, scale] + ([] if zero is None else [zero])
    return node.builder.add("DequantizeLinear", node.name, operands, params={"axis": -1})[0]
