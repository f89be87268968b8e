"""Compute dtypes of decompositions: as wide as in ONNX's operators, which round once."""

from __future__ import annotations

from engine.onnx.translation.node import Node
from engine.onnx.translation.value import Value
from engine.onnx.translators.shape import torch_name

_WIDE = ("float32", "float64")


def widened(node: Node, x: Value) -> Value:
    """Return floats of half precision in float32; integers, and what has an unknown dtype, in float64."""
    if x.dtype is not None and x.dtype.name in _WIDE:
        return x
    is_half = x.dtype is not None and x.dtype.kind not in "biu"
    return node.make("Tensor.to", x, dtype="torch.float" if is_half else "torch.double")


def in_dtype_of(node: Node, y: Value, x: Value) -> Value:
    """Return a value in the dtype of another."""
    if x.dtype is None:
        return node.make("Tensor.type_as", y, x)
    return y if y.dtype == x.dtype else node.make("Tensor.to", y, dtype=torch_name(x.dtype))
