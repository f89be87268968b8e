"""Translators of triangles, diagonals and window functions."""

from __future__ import annotations

import math
from typing import Final

from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import MICROSOFT, translates
from engine.onnx.translation.value import Value
from engine.onnx.translators.precision import in_dtype_of
from engine.onnx.translators.shape import in_dtype

_WINDOWS: Final = {
    "HannWindow": (0.5, -0.5),
    "HammingWindow": (25 / 46, -21 / 46),
    "BlackmanWindow": (0.42, -0.5, 0.08),
}
"""Factors of cos(k * angle)."""


@translates("Trilu", since=14)
@translates("Trilu", domain=MICROSOFT)
def triangle(node: Node) -> Value:
    """Translate to torch.triu or torch.tril."""
    type, k = "torch.triu" if node.number("upper", 1) else "torch.tril", node.array(1)
    if node.is_given(1) and (k is None or k.size != 1):
        return node.make(type, node.input(0), node.input(1), labels=("input", "diagonal"))
    return node.make(type, node.input(0), diagonal=0 if k is None else int(k.reshape(())))


@translates("EyeLike", since=9)
def eye_like(node: Node) -> Value:
    """Translate to the intersection of two triangles of ones: the k-th diagonal."""
    x, k = node.input(0), node.number("k", 0)
    ones = node.make("torch.ones_like", x, dtype="torch.float")
    y = node.make("torch.tril", node.make("torch.triu", ones, diagonal=k), diagonal=k)
    return in_dtype(node, y, "dtype", 1) if "dtype" in node.attributes else in_dtype_of(node, y, x)


@translates(*_WINDOWS, since=17)
def window(node: Node) -> Value:
    """Translate to a sum of cosines over one period; unless symmetric, the last element is dropped."""
    size = node.input(0)
    period = node.make("Tensor.to", size, dtype="torch.double")
    if not node.number("periodic", 1):
        period = node.make("torch.sub", period, other=1)
    turns = node.make("torch.arange", size, labels=("end",), dtype="torch.double")
    parts = node.make("torch.div", turns, node.make("torch.clamp", period, min=1.0))
    angle = node.make("torch.mul", parts, other=math.tau)
    first, *factors = _WINDOWS[node.type]
    total = node.make("torch.add", node.make("torch.mul", angle, other=0.0), other=first)
    for k, factor in enumerate(factors, start=1):
        wave = node.make("torch.cos", node.make("torch.mul", angle, other=float(k)))
        total = node.make("torch.add", total, node.make("torch.mul", wave, other=factor))
    return in_dtype(node, total, "output_datatype", 1)
