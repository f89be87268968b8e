"""Rotary embeddings of ONNX and of onnxruntime."""

from __future__ import annotations

from typing import Final

import numpy as np

from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import MICROSOFT, translates
from engine.onnx.translation.value import Value, constant
from engine.onnx.translators.attention.heads import by_heads, packed
from engine.onnx.translators.indexing import selected
from engine.onnx.translators.shape import reshaped

_FLOAT32: Final = np.dtype(np.float32)


@translates("RotaryEmbedding", since=23)
def standard_rotation(node: Node) -> list[Value]:
    """Translate to products and sums; keep ONNX's layer if a required size is unknown."""
    cos, sin, places = node.input(1), node.input(2), node.optional(3)
    found = _rotation(node, cos, sin, places)
    return node.same() if found is None else [found]


@translates("RotaryEmbedding", domain=MICROSOFT)
def rotation(node: Node) -> list[Value] | None:
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
    found = _rotation(node, node.input(2), node.input(3), places)
    return None if found is None else [found]


def _rotation(node: Node, cos: Value, sin: Value, places: Value | None) -> Value | None:
    """Rotate the element pairs of every head; None if a required size is unknown."""
    x, heads = node.input(0), node.number("num_heads", 0)
    if x.dtype != _FLOAT32 or cos.dtype != _FLOAT32 or x.rank not in (3, 4) or cos.tensor is None:
        return None
    half = cos.tensor.shape[-1] if cos.rank else None
    if half is None or cos.rank != (2 if places is not None else 3):
        return None
    if x.rank == 3 and not heads:
        width = None if x.tensor is None else x.tensor.shape[2]
        heads = 0 if width is None or not half else width // (2 * half)
    y = by_heads(node, x, heads) if x.rank == 3 else x
    size = None if y is None or y.tensor is None else y.tensor.shape[3]
    if y is None or size is None or not 0 < 2 * half <= size:
        return None
    if (node.number("rotary_embedding_dim", 0) or (2 * half)) != 2 * half:
        return None
    if places is not None:
        cos, sin = (selected(node, each, places) for each in (cos, sin))
    cos, sin = (node.make("torch.unsqueeze", each, dim=1) for each in (cos, sin))
    y = _turned(node, y, cos, sin, half, size)
    return y if x.rank == 4 or y is None else packed(node, y)


def _turned(node: Node, x: Value, cos: Value, sin: Value, half: int, size: int) -> Value | None:
    def part(first: int, last: int) -> Value:
        return node.make("Tensor.slice", x, dim=3, start=first, end=last, step=1)

    shape = x.shape_as()
    rest = [part(2 * half, size)] if size > 2 * half else []
    is_interleaved = bool(node.number("interleaved", 0))
    if is_interleaved:
        if shape is None:
            return None
        pairs = reshaped(node, part(0, 2 * half) if rest else x, [*shape[:3], half, 2])
        a, b = (node.make("Tensor.select", pairs, dim=4, index=index) for index in (0, 1))
    else:
        a, b = part(0, half), part(half, 2 * half)
    real = node.expression("sub(mul(@0,@2),mul(@1,@3))", a, b, cos, sin)
    other = node.expression("add(mul(@0,@3),mul(@1,@2))", a, b, cos, sin)
    if not is_interleaved:
        return node.make("torch.cat", real, other, *rest, dim=-1)
    assert shape is not None
    both = reshaped(node, node.make("torch.stack", real, other, dim=-1), [*shape[:3], 2 * half])
    return node.make("torch.cat", both, *rest, dim=-1) if rest else both
