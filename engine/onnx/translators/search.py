"""Translators of searches: extremes, largest, distinct, nonzero and selected elements."""

from __future__ import annotations

from typing import Any

from engine.errors import ShapeError
from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import translates
from engine.onnx.translation.value import Value


@translates("ArgMax", "ArgMin")
def extreme(node: Node) -> Value:
    """Translate to torch.argmax or argmin; the last of equal elements is the first of the flipped input."""
    x, axis = node.input(0), node.number("axis", 0)
    type, keeps = f"torch.{node.type.lower()}", bool(node.number("keepdims", 1))
    if not node.number("select_last_index", 0):
        return node.make(type, x, dim=axis, keepdim=keeps)
    found = node.make(type, node.make("torch.flip", x, dims=(axis,)), dim=axis, keepdim=keeps)
    return node.expression(f"sub(sub(size(@0,{axis}),1),@1)", x, found)


@translates("TopK")
def top(node: Node) -> list[Value]:
    """Translate to torch.topk."""
    x, k = node.input(0), node.integers(1, "k")
    params: dict[str, Any] = {
        "dim": node.number("axis", -1),
        "largest": bool(node.number("largest", 1)),
        "sorted": bool(node.number("sorted", 1)),
    }
    if x.rank == 0:
        raise ShapeError("input has no axis", found="[]", expected="at least one dimension")
    if k is not None:
        found = node.all(2, "torch.topk", x, k=k, **params)
    else:
        found = node.all(2, "torch.topk", x, node.input(1), labels=("input", "k"), **params)
    return node.results(found, ("values", "indices"))


@translates("NonZero", since=9)
def nonzero(node: Node) -> Value:
    """Translate to torch.nonzero, with one position per column."""
    x = node.input(0)
    x = x if x.rank else node.make("aten::atleast_1d", x)
    return node.make("torch.permute", node.make("torch.nonzero", x), dims=(1, 0))


@translates("Compress", since=9)
def compress(node: Node) -> Value:
    """Translate to torch.index_select by the positions where the condition holds."""
    x, condition = node.input(0), node.input(1)
    if condition.rank not in (1, None):
        raise ShapeError("condition does not fit", found=f"{condition.rank} dimensions", expected=1)
    if "axis" not in node.attributes:
        x = node.make("torch.flatten", x, start_dim=0, end_dim=-1)
    places = node.make("torch.flatten", node.make("torch.nonzero", condition), start_dim=0, end_dim=-1)
    return node.make("torch.index_select", x, places, dim=node.number("axis", 0))


@translates("OneHot", since=9)
def one_hot(node: Node) -> Value:
    """Compare each index, counted from the end if it is negative, with the numbers of all classes."""
    index, depth, values, axis = node.input(0), node.input(1), node.input(2), node.number("axis", -1)
    if index.dtype is None or index.dtype.kind == "f":
        index = node.make("Tensor.to", index, dtype="torch.long")
    if depth.dtype is not None and depth.dtype.kind == "f":
        depth = node.make("Tensor.to", depth, dtype="torch.long")
    depth = node.make("Tensor.reshape", depth, shape=()) if depth.rank != 0 else depth
    classes = node.make("torch.arange", depth, labels=("end",), dtype="torch.long")
    behind = -1 - axis if axis < 0 else node.rank() - axis
    if behind:
        classes = node.make("Tensor.reshape", classes, shape=(-1, *(1,) * behind))
    is_negative = node.make("torch.lt", index, other=0)
    index = node.make("torch.where", is_negative, node.make("torch.add", index, depth), index)
    is_class = node.make("torch.eq", node.make("torch.unsqueeze", index, dim=axis), classes)
    off, on = (node.make("Tensor.slice", values, dim=0, start=k, end=k + 1) for k in (0, 1))
    return node.make("torch.where", is_class, on, off)


@translates("Unique", since=11)
def unique(node: Node) -> list[Value]:
    """Translate to aten::_unique2 or unique_dim; the first of equal elements is the first in a stable order."""
    x, axis = node.input(0), node.number("axis", 0)
    if "axis" in node.attributes:
        values, inverse, counts = node.all(3, "aten::unique_dim", x, dim=axis, return_inverse=True, return_counts=True)
    else:
        values, inverse, counts = node.all(3, "aten::_unique2", x, return_inverse=True, return_counts=True)
        inverse = node.make("torch.flatten", inverse, start_dim=0, end_dim=-1)

    def order(value: Value) -> Value:
        return node.all(2, "torch.sort", value, dim=0)[1]

    def picked(value: Value, places: Value, dim: int = 0) -> Value:
        return node.make("torch.index_select", value, places, dim=dim)

    ends = node.make("torch.cumsum", counts, dim=0)
    first = picked(order(inverse), node.make("torch.sub", ends, counts))
    if not node.number("sorted", 1):
        places = order(first)
        values, first, counts = picked(values, places, axis), picked(first, places), picked(counts, places)
        inverse = picked(order(places), inverse)
    return node.results([values, first, inverse, counts], ("values", "indices", "inverse", "counts"))
