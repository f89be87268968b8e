"""Attention operators of onnxruntime."""

from __future__ import annotations

from itertools import accumulate
from typing import Final

import numpy as np

from engine.errors import ParameterError
from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import MICROSOFT, translates
from engine.onnx.translation.value import Value, constant
from engine.onnx.translators.attention.heads import added, attended, by_heads, length_of, packed, with_past
from engine.onnx.translators.microsoft.quantised import real_array
from engine.tensor import Array

_LOWEST: Final = -10000.0


@translates("Attention", domain=MICROSOFT)
def attention(node: Node) -> list[Value] | None:
    """Translate to nn.Linear and attention."""
    weight, bias = node.array(1), node.array(2)
    if weight is None or node.is_given(6) or (node.is_given(2) and bias is None):
        return None
    return _own_attention(node, node.input(0), weight, bias, 3, 4)


@translates("QAttention", domain=MICROSOFT)
def quantised_attention(node: Node) -> list[Value] | None:
    """Dequantise the input and the weight, then translate like Attention."""
    weight, bias, scale, zero = (node.array(k) for k in (1, 2, 4, 7))
    if weight is None or bias is None or scale is None or (node.is_given(7) and zero is None):
        return None
    middle = node.optional(6)
    operands = [node.input(0), node.input(3)] + ([] if middle is None else [middle])
    x = node.builder.add("DequantizeLinear", node.name, operands)[0]
    weight = real_array(weight, scale.reshape(-1), None if zero is None else zero.reshape(-1))
    return _own_attention(node, x, weight, bias, 5, 8)


def _own_attention(node: Node, x: Value, weight: Array, bias: Array | None, mask: int, past: int) -> list[Value] | None:
    """Append one product for queries, keys and values, then attention.

    Args:
        mask, past: indices of these inputs.
    """
    heads, causal = node.number("num_heads", 0), bool(node.number("unidirectional", 0))
    if weight.ndim != 2 or node.number("do_rotary", 0) or any(node.outputs[2:]):
        return None
    sizes = node.numbers("qkv_hidden_sizes") or (weight.shape[1] // 3,) * 3
    if len(sizes) != 3 or sum(sizes) != weight.shape[1]:
        return None
    whole = _linear(node, x, weight, bias)
    parts = node.builder.add(
        "torch.split", node.name, [whole], outputs=("", "", ""), params={"split_size_or_sections": sizes, "dim": -1}
    )
    split = [by_heads(node, part, heads) for part in parts]
    q, k, v = split
    earlier = node.optional(past)
    if q is None or k is None or v is None:
        return None
    front = None
    if earlier is not None:
        if earlier.rank != 5:
            return None
        front = node.make("Tensor.select", earlier, dim=0, index=0)
        k = with_past(node, front, k)
        v = with_past(node, node.make("Tensor.select", earlier, dim=0, index=1), v)
    masks = []
    if node.is_given(mask):
        batch = None if x.tensor is None else x.tensor.shape[0]
        found = _hidden(node, node.input(mask), batch, length_of(k))
        if found is None:
            return None
        masks.append(found)
    if past == 4 and node.is_given(5):
        masks.append(node.input(5))
    y = attended(node, q, k, v, masks, causal=causal, past=front, scale=node.real("scale", 0.0))
    result = packed(node, y)
    if len(node.outputs) < 2 or not node.outputs[1]:
        return [result]
    return [result, node.make("torch.stack", k, v, dim=0)]


def _linear(node: Node, x: Value, weight: Array, bias: Array | None) -> Value:
    """Append x @ weight + bias as nn.Linear."""
    stored = {"weight": np.ascontiguousarray(weight.T)}
    if bias is not None:
        stored["bias"] = bias
    return node.make(
        "nn.Linear", x, weights=stored, bias=bias is not None, in_features=weight.shape[0], out_features=weight.shape[1]
    )


@translates("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(node: Node) -> list[Value] | None:
    """Translate attention of given queries, keys and values, packed or not, with optional cached keys and values."""
    if any(node.is_given(k) for k in range(8, len(node.inputs))) or any(node.outputs[3:]):
        return None
    split = _split_heads(node)
    if split is None:
        return None
    q, k, v = split
    pasts = node.optional(6), node.optional(7)
    if (pasts[0] is None) != (pasts[1] is None):
        raise ParameterError("keys of earlier steps come with values", found="one of them", expected="both, or none")
    k, v = (with_past(node, past, new) for past, new in zip(pasts, (k, v), strict=True))
    masks = []
    if node.is_given(4):
        batch = None if q.tensor is None else q.tensor.shape[0]
        found = _hidden(node, node.input(4), batch, length_of(k))
        if found is None:
            return None
        masks.append(found)
    if node.is_given(5):
        masks.append(node.input(5))
    causal = bool(node.number("unidirectional", 0))
    y = packed(node, attended(node, q, k, v, masks, causal=causal, past=pasts[0], scale=node.real("scale", 0.0)))
    return [y, k, v][: max(1, len(node.outputs))]


def _split_heads(node: Node) -> list[Value] | None:
    """Return queries, keys and values as (B, H, S, D) with biases added; None for an unsupported layout."""
    heads, bias = node.number("num_heads", 0), node.array(3)
    given = [value for value in (node.optional(k) for k in range(3)) if value is not None]
    ranks = tuple(value.rank for value in given)
    if ranks == (3, 3, 3):
        if node.is_given(3):
            if bias is None or bias.ndim != 1:
                return None
            widths = [part.tensor.shape[2] for part in given if part.tensor is not None]
            ends = list(accumulate(width for width in widths if width is not None))
            if len(ends) < len(given):
                return None
            pieces = np.split(bias, ends[:-1])
            given = [node.expression("add(@0,@1)", part, constant(np.ascontiguousarray(piece)))
                     for part, piece in zip(given, pieces, strict=True)]  # fmt: skip
        split = [by_heads(node, part, heads) for part in given]
        return [part for part in split if part is not None] if None not in split else None
    if node.is_given(3):
        return None
    if ranks == (5,):  # (B, S, H, 3, D)
        return [_item(node, given[0], index) for index in range(3)]
    first = by_heads(node, given[0], heads) if ranks and ranks[0] == 3 else None
    if first is None:
        return None
    if ranks == (3, 5):  # (B, S, H, 2, D)
        return [first, *(_item(node, given[1], index) for index in range(2))]
    return [first, *given[1:]] if ranks == (3, 4, 4) else None


def _item(node: Node, x: Value, index: int) -> Value:
    return node.make("torch.permute", node.make("Tensor.select", x, dim=3, index=index), dims=(0, 2, 1, 3))


def _hidden(node: Node, mask: Value, batch: object, length: object) -> Value | None:
    """Convert onnxruntime's key mask to an additive mask; None if the required sizes are unknown.

    Args:
        length: number of keys, cached ones included.
    """
    low = node.real("mask_filter_value", _LOWEST)
    if mask.rank == 1:
        spec = mask.tensor
        if not isinstance(length, int) or spec is None or spec.shape[0] is None or spec.shape[0] != batch:
            return None
        places = constant(np.arange(length, dtype=np.int64).reshape(1, 1, 1, -1))
        ends = node.make("Tensor.reshape", mask, shape=(-1, 1, 1, 1))
        return added(node, node.make("torch.lt", places, ends), low)
    if mask.rank not in (2, 3):
        return None
    seen = node.make("torch.ne", mask, constant(np.zeros((), mask.dtype)))
    for _ in range(4 - mask.rank):
        seen = node.make("torch.unsqueeze", seen, dim=1)
    return added(node, seen, low)


_GROUPED: Final = (
    "num_heads", "kv_num_heads", "scale", "local_window_size", "do_rotary", "rotary_interleaved", "softcap",
    "smooth_softmax",
)  # fmt: skip


@translates("GroupQueryAttention", domain=MICROSOFT)
def grouped_attention(node: Node) -> list[Value] | None:
    """Keep the operator as a layer, because the number of keys is only known at run time."""
    others = {key: value for key, value in node.attributes.items() if key not in _GROUPED}
    if any(others.values()) or any(node.outputs[3:]) or any(node.is_given(k) for k in range(12, len(node.inputs))):
        return None
    return node.same(**dict.fromkeys(others))
