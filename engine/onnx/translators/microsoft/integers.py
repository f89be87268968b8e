"""What integers stand for, and the integers that stand for real numbers."""

from __future__ import annotations

import numpy as np

from engine.errors import ParameterError
from engine.onnx.translation.node import Node
from engine.onnx.translation.value import Value
from engine.tensor import Array


def real(node: Node, x: Value, scale: Value | None, zero: Value | None) -> Value:
    """What quantised numbers stand for."""
    if scale is None:
        raise ParameterError("a scale is missing")
    operands = [x, scale] + ([] if zero is None else [zero])
    return node.builder.add("DequantizeLinear", node.name, operands)[0]


def quantised(node: Node, y: Value, scale: Value | None, zero: Value | None) -> Value:
    """Numbers as the integers that stand for them."""
    if scale is None:
        raise ParameterError("a scale is missing")
    operands = [y, scale] + ([] if zero is None else [zero])
    return node.builder.add("QuantizeLinear", node.name, operands, outputs=node.outputs[:1])[0]


def real_array(codes: Array, scale: Array, zero: Array | None) -> Array:
    """What stored quantised numbers stand for; scales and zero points are one, or one a column."""
    wide = codes.astype(np.float32) - (np.float32(0) if zero is None else zero.astype(np.float32))
    return np.asarray(wide * scale.astype(np.float32), np.float32)


def codes_of(rows: Array, bits: int) -> Array:
    """Numbers of a few bits, the first in the lowest ones."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return np.asarray(((rows[..., None] >> shifts) & np.uint8((1 << bits) - 1)).reshape(len(rows), -1))


def columns(node: Node, x: Value, scale: Value | None, zero: Value | None) -> Value:
    """What quantised numbers stand for, whose scale may be one a column."""
    if scale is None:
        raise ParameterError("a scale is missing")
    operands = [x, scale] + ([] if zero is None else [zero])
    return node.builder.add("DequantizeLinear", node.name, operands, params={"axis": -1})[0]
