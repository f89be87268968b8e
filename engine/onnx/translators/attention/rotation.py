"""Rotary embeddings of ONNX and of onnxruntime."""

from __future__ import annotations

from typing import Final

import numpy as np

from engine.errors import ShapeError
from engine.layers.onnx.operands.adapter import check_fits
from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import MICROSOFT, translates
from engine.onnx.translation.value import Value, constant
from engine.onnx.translators.attention.heads import by_heads, packed
from engine.onnx.translators.indexing import selected
from engine.onnx.translators.precision import in_dtype_of, widened
from engine.tensor import Shape, format_shape

_TO_THE_END: Final = 2**63 - 1


@translates("RotaryEmbedding", since=23)
def standard_rotation(node: Node) -> Value:
    """Translate to products and sums."""
    return _rotation(node, node.input(1), node.input(2), node.optional(3))


@translates("RotaryEmbedding", domain=MICROSOFT)
def rotation(node: Node) -> Value | None:
    """Translate to products and sums; onnxruntime's operand order has the positions before the caches."""
    if node.real("scale", 1.0) != 1.0 or node.number("is_packed_batching", 0):
        return None
    places, x = node.input(1), node.input(0)
    if places.rank == 1:
        spec = x.tensor
        length = None if spec is None or spec.rank not in (3, 4) else spec.shape[1 if spec.rank == 3 else 2]
        if length is None:
            return None
        steps = constant(np.arange(length, dtype=np.int64).reshape(1, -1))
        places = node.expression("add(@0,@1)", steps, places)
    return _rotation(node, node.input(2), node.input(3), places)


def _rotation(node: Node, cos: Value, sin: Value, places: Value | None) -> Value:
    """Rotate the element pairs of every head.

    Raises:
        ShapeError: an operand does not fit, or its number of axes is unknown.
    """
    x, rank = node.input(0), node.rank(0)
    check_fits(rank in (3, 4), "input", x.tensor.shape if x.tensor else (), "3 or 4 axes")
    for cache in (cos, sin):
        expected = "3 axes" if places is None else "2 axes, as the positions"
        check_fits(cache.rank in (None, 3 if places is None else 2), "cache", _shape(cache), expected)
    y = _heads(node, x, _shape(cos)[-1:]) if rank == 3 else x
    if places is not None:
        cos, sin = (selected(node, each, places) for each in (cos, sin))
    cos, sin = (node.make("torch.unsqueeze", widened(node, each), dim=1) for each in (cos, sin))
    y = in_dtype_of(node, _turned(node, widened(node, y), cos, sin), x)
    return packed(node, y) if rank == 3 else y


def _heads(node: Node, x: Value, half: Shape) -> Value:
    """Split the heads; without their number, onnxruntime's are as wide as two rows of angles."""
    heads, width = node.number("num_heads", 0), _shape(x)[-1]
    if not heads and width and half and half[0]:
        heads = width // (2 * half[0])
    y = by_heads(node, x, heads)
    if y is None:
        raise ShapeError("the width does not divide into heads", found=format_shape(_shape(x)), expected=heads)
    return y


def _shape(x: Value) -> Shape:
    return x.tensor.shape if x.tensor is not None else ()


def _turned(node: Node, x: Value, cos: Value, sin: Value) -> Value:
    """Rotate the first elements of each head, twice as many as there are angles."""
    size, angles = (_shape(each)[-1] if each.tensor else None for each in (x, cos))
    width = node.number("rotary_embedding_dim", 0) or (size if angles is None else 2 * angles)
    if width is not None and (width % 2 or width < 1 or (size is not None and width > size)):
        raise ShapeError("no such part of a head", found=width, expected=f"an even number up to {size or 'its width'}")
    check_fits(None in (width, angles) or width == 2 * (angles or 0), "cache", _shape(cos), f"{width} / 2 angles")

    def part(first: int, last: int) -> Value:
        return node.make("Tensor.slice", x, dim=3, start=first, end=last, step=1)

    rest = [] if width in (None, size) else [part(width or 0, _TO_THE_END if size is None else size)]
    if node.number("interleaved", 0):
        pairs = node.make(
            "Tensor.reshape", part(0, width or 0) if rest else x, shape=(0, 0, 0, -1, 2), zero_copies=True
        )
        a, b = (node.make("Tensor.select", pairs, dim=4, index=index) for index in (0, 1))
    elif width is None:
        a, b = node.all(2, "torch.chunk", x, chunks=2, dim=-1)
    else:
        a, b = part(0, width // 2), part(width // 2, width)
    real = node.expression("sub(mul(@0,@2),mul(@1,@3))", a, b, cos, sin)
    other = node.expression("add(mul(@0,@3),mul(@1,@2))", a, b, cos, sin)
    if not node.number("interleaved", 0):
        return node.make("torch.cat", real, other, *rest, dim=-1)
    both = node.make("torch.flatten", node.make("torch.stack", real, other, dim=-1), start_dim=3, end_dim=-1)
    return node.make("torch.cat", both, *rest, dim=-1) if rest else both
