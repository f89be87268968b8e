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


@translates("RandomNormal", "RandomUniform")
def of_shape(node: Node) -> Value:
    """Numbers of a given shape."""
    is_normal = node.type == "RandomNormal"
    shape = node.numbers("shape")
    base = node.make("torch.randn" if is_normal else "torch.zeros", size=shape, dtype="torch.double")
    return in_dtype(node, _drawn(node, base, is_normal=is_normal), "dtype", 1)


@translates("RandomNormalLike", "RandomUniformLike")
def of_input(node: Node) -> Value:
    """Numbers in the shape of the input."""
    is_normal = node.type == "RandomNormalLike"
    base = node.make("torch.randn_like" if is_normal else "torch.zeros_like", node.input(0), dtype="torch.double")
    return _cast(node, _drawn(node, base, is_normal=is_normal))


@translates("Bernoulli", since=15)
def bernoulli(node: Node) -> Value:
    """1 with the probability that the input gives, else 0."""
    return _cast(node, node.make("aten::bernoulli", node.input(0)))


@translates("Multinomial")
def multinomial(node: Node) -> Value:
    """Classes drawn from every row of logarithms of weights."""
    x = node.make("Tensor.to", node.input(0), dtype="torch.double")
    top = node.make("torch.amax", x, dim=(1,), keepdim=True, allow_empty=True)
    weights = node.make("torch.exp", node.make("torch.sub", x, top))
    count = node.number("sample_size", 1)
    drawn = node.make("aten::multinomial", weights, num_samples=count, replacement=True)
    return in_dtype(node, drawn, "dtype", 6)


def _drawn(node: Node, base: Value, *, is_normal: bool) -> Value:
    if not is_normal:
        return node.make("aten::uniform", base, low=node.real("low", 0.0), high=node.real("high", 1.0))
    wide = node.make("torch.mul", base, other=node.real("scale", 1.0))
    return node.make("torch.add", wide, other=node.real("mean", 0.0))


def _cast(node: Node, y: Value) -> Value:
    if "dtype" in node.attributes:
        return in_dtype(node, y, "dtype", 1)
    return in_dtype_of(node, y, node.input(0))
