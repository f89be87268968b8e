"""Attention in the words of ONNX and onnxruntime as that for which there are kernels; rotated positions likewise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from engine.errors import ParameterError
from engine.onnx.node import Node
from engine.onnx.registry import translates
from engine.onnx.translators.microsoft import real_array
from engine.onnx.translators.shape import reshaped
from engine.onnx.value import Value, constant
from engine.tensor import Array

_DOMAIN: Final = "com.microsoft"
_FLOAT32: Final = np.dtype(np.float32)
_LOWEST: Final = -10000.0


def by_heads(node: Node, x: Value, heads: int) -> Value | None:
    """(B, S, H*D) as (B, H, S, D); None where the width is not known, or does not divide."""
    shape = x.shape_as()
    if shape is None or len(shape) != 3 or not isinstance(shape[2], int) or heads < 1 or shape[2] % heads:
        return None
    parts = reshaped(node, x, [*shape[:2], heads, shape[2] // heads])
    return node.make("torch.permute", parts, dims=(0, 2, 1, 3))


def packed(node: Node, y: Value) -> Value | None:
    """(B, H, S, D) as (B, S, H*D)."""
    y = node.make("torch.permute", y, dims=(0, 2, 1, 3))
    shape = y.shape_as()
    if shape is None or not isinstance(shape[2], int) or not isinstance(shape[3], int):
        return None
    return reshaped(node, y, [*shape[:2], shape[2] * shape[3]])


def added(node: Node, mask: Value, low: float = -np.inf) -> Value:
    """True for keys that count and False for others as what is added to scores."""
    return node.make("torch.where", mask, constant(np.array(0, np.float32)), constant(np.array(low, np.float32)))


def attended(
    node: Node,
    q: Value,
    k: Value,
    v: Value,
    masks: Sequence[Value],
    *,
    causal: bool = False,
    past: Value | None = None,
    scale: float = 0.0,
    grouped: bool = False,
) -> Value:
    """Attention of heads, (B, H, S, D).

    Args:
        masks: each added to the scores.
        past: keys of earlier steps, which are in front of ``k`` already, where there are any.
        scale: of the scores; 0 for what is usual.
    """
    masks = list(masks)
    if causal and (masks or past is not None):
        operands = [q, k] if past is None else [q, k, past]
        masks.append(node.make("onnx.CausalMask", *operands))
        causal = False
    operands = [q, k, v]
    if masks:
        total = masks[0]
        for mask in masks[1:]:
            total = node.expression("add(@0,@1)", total, mask)
        operands.append(total)
    labels = ("query", "key", "value", "attn_mask")[: len(operands)]
    params: dict[str, Any] = {"is_causal": causal, **({"scale": scale} if scale else {})}
    if grouped:
        params["enable_gqa"] = True
    return node.builder.add(
        "F.scaled_dot_product_attention", node.name, operands, params=params, labels=labels
    )[0]  # fmt: skip


def with_past(node: Node, past: Value | None, new: Value) -> Value:
    """Keys or values behind those of earlier steps."""
    return new if past is None else node.make("torch.cat", past, new, dim=2)


def _hidden(node: Node, mask: Value, batch: object, length: object) -> Value | None:
    """Which keys count, as onnxruntime has it, as what is added to scores; None where that is not known.

    Args:
        length: of the keys, those of earlier steps included.
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


def _length(k: Value) -> object:
    spec = k.tensor
    return None if spec is None else spec.shape[2]


def _own_attention(node: Node, x: Value, weight: Array, bias: Array | None, mask: int, past: int) -> list[Value] | None:
    """A product that makes queries, keys and values, then attention.

    Args:
        mask, past: numbers of these inputs.
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
        found = _hidden(node, node.input(mask), batch, _length(k))
        if found is None:
            return None
        masks.append(found)
    if past == 4 and node.is_given(5):
        masks.append(node.input(5))
    y = attended(node, q, k, v, masks, causal=causal, past=front, scale=node.real("scale", 0.0))
    result = packed(node, y)
    if result is None or len(node.outputs) < 2 or not node.outputs[1]:
        return None if result is None else [result]
    return [result, node.make("torch.stack", k, v, dim=0)]


@translates("Attention", domain=_DOMAIN)
def attention(node: Node) -> list[Value] | None:
    """nn.Linear and attention."""
    weight, bias = node.array(1), node.array(2)
    if weight is None or node.is_given(6) or (node.is_given(2) and bias is None):
        return None
    return _own_attention(node, node.input(0), weight, bias, 3, 4)


@translates("QAttention", domain=_DOMAIN)
def quantised_attention(node: Node) -> list[Value] | None:
    """The same of what quantised numbers stand for."""
    weight, bias, scale, zero = (node.array(k) for k in (1, 2, 4, 7))
    if weight is None or bias is None or scale is None or (node.is_given(7) and zero is None):
        return None
    middle = node.optional(6)
    operands = [node.input(0), node.input(3)] + ([] if middle is None else [middle])
    x = node.builder.add("DequantizeLinear", node.name, operands)[0]
    weight = real_array(weight, scale.reshape(-1), None if zero is None else zero.reshape(-1))
    return _own_attention(node, x, weight, bias, 5, 8)


def _linear(node: Node, x: Value, weight: Array, bias: Array | None) -> Value:
    """x @ weight + bias as nn.Linear."""
    stored = {"weight": np.ascontiguousarray(weight.T)}
    if bias is not None:
        stored["bias"] = bias
    return node.make(
        "nn.Linear", x, weights=stored, bias=bias is not None, in_features=weight.shape[0], out_features=weight.shape[1]
    )


@translates("MultiHeadAttention", domain=_DOMAIN)
def multi_head_attention(node: Node) -> list[Value] | None:
    """Attention of queries, keys and values that are made already, packed or not, behind those of earlier steps."""
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
        found = _hidden(node, node.input(4), batch, _length(k))
        if found is None:
            return None
        masks.append(found)
    if node.is_given(5):
        masks.append(node.input(5))
    causal = bool(node.number("unidirectional", 0))
    y = packed(node, attended(node, q, k, v, masks, causal=causal, past=pasts[0], scale=node.real("scale", 0.0)))
    return None if y is None else [y, k, v][: max(1, len(node.outputs))]


def _split_heads(node: Node) -> list[Value] | None:
    """Queries, keys and values as (B, H, S, D), biases added."""
    heads, bias = node.number("num_heads", 0), node.array(3)
    given = [value for value in (node.optional(k) for k in range(3)) if value is not None]
    ranks = tuple(value.rank for value in given)
    if ranks == (3, 3, 3):
        if node.is_given(3):
            if bias is None or bias.ndim != 1:
                return None
            ends = np.cumsum([part.tensor.shape[2] or 0 for part in given if part.tensor is not None])
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


_GROUPED: Final = (
    "num_heads", "kv_num_heads", "scale", "local_window_size", "do_rotary", "rotary_interleaved", "softcap",
    "smooth_softmax",
)  # fmt: skip


@translates("GroupQueryAttention", domain=_DOMAIN)
def grouped_attention(node: Node) -> list[Value] | None:
    """Its own layer: how many keys count is a value of the run."""
    others = {key: value for key, value in node.attributes.items() if key not in _GROUPED}
    if any(others.values()) or any(node.outputs[3:]) or any(node.is_given(k) for k in range(12, len(node.inputs))):
        return None
    return node.same(**dict.fromkeys(others))


@translates("Attention", since=23)
def standard_attention(node: Node) -> list[Value]:
    """F.scaled_dot_product_attention where it means that; else ONNX's own."""
    return _mapped(node) or node.same()


def _mapped(node: Node) -> list[Value] | None:
    ends = [node.number(key, -1) for key in ("left_window_size", "right_window_size")]
    values = [node.input(k) for k in range(3)]
    is_plain = not node.real("softcap", 0.0) and max(ends) < 0 and not node.is_given(6) and not any(node.outputs[3:])
    if not is_plain or any(value.dtype != _FLOAT32 or value.rank not in (3, 4) for value in values):
        return None
    heads = node.number("q_num_heads", 0), *[node.number("kv_num_heads", 0)] * 2
    split = [by_heads(node, x, n) if x.rank == 3 else x for x, n in zip(values, heads, strict=True)]
    pasts = node.optional(4), node.optional(5)
    if any(part is None for part in split) or (pasts[0] is None) != (pasts[1] is None):
        return None
    q, new_k, new_v = (part for part in split if part is not None)
    counts = [None if part.tensor is None else part.tensor.shape[1] for part in (q, new_k)]
    if None in counts or any(past is not None and past.rank != 4 for past in pasts):
        return None
    k, v = with_past(node, pasts[0], new_k), with_past(node, pasts[1], new_v)
    masks = []
    if node.is_given(3):
        mask = node.input(3)
        keys = None if mask.tensor is None or not mask.rank else mask.tensor.shape[-1]
        if keys is None or keys != _length(k) or mask.dtype not in (_FLOAT32, np.dtype(np.bool_)):
            return None
        masks.append(added(node, mask) if mask.dtype != _FLOAT32 else mask)
    causal, scale = bool(node.number("is_causal", 0)), node.real("scale", 0.0)
    y: Value | None = attended(
        node, q, k, v, masks, causal=causal, past=pasts[0], scale=scale, grouped=counts[0] != counts[1]
    )
    y = packed(node, y) if y is not None and values[0].rank == 3 else y
    return None if y is None else [y, k, v][: max(1, len(node.outputs))]


@translates("RotaryEmbedding", since=23)
def standard_rotation(node: Node) -> list[Value]:
    """Products and sums; ONNX's own where something is known only in a run."""
    cos, sin, places = node.input(1), node.input(2), node.optional(3)
    found = _rotation(node, cos, sin, places)
    return node.same() if found is None else [found]


@translates("RotaryEmbedding", domain=_DOMAIN)
def rotation(node: Node) -> list[Value] | None:
    """The same, with the places before the angles."""
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
    """Pairs of elements of every head turned; None where a size that it takes is not known."""
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
        cos, sin = (node.builder.add("Gather", node.name, [each, places], params={"axis": 0})[0] for each in (cos, sin))
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
