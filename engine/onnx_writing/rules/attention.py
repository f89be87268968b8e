"""Attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.layers.attention import attention
from engine.onnx_writing.registry import writes
from engine.onnx_writing.value import Operand, Value
from engine.onnx_writing.writer import BOOL, INT64, Writer
from engine.tensor import Array


@writes(attention.ScaledDotProductAttention, attention.MaskedAttention)
def attend(
    to: Writer,
    layer: attention.ScaledDotProductAttention,
    query: Value,
    key: Value,
    value: Value,
    *masks: Value | None,
) -> Value:
    """Write softmax(query @ key.T * scale + masks) @ value."""
    q, k, v = to.widest(query, key, value)
    if layer.enable_gqa:
        k, v = (_for_every_head(to, each, q) for each in (k, v))
    (width,) = to.known(query.shape[-1:], "the width of a head")
    turned = to.transpose(k, [*range(k.rank - 2), k.rank - 1, k.rank - 2])
    scores = to.op("MatMul", q, turned) * layer.scale_of(width)
    hides = layer.is_causal
    for mask in masks:
        if mask is not None:
            hides = hides or mask.dtype == BOOL or mask.constant is None or bool(np.isinf(mask.constant).any())
            # True lets a key take part in PyTorch's own attention, and leaves it out in others.
            allowed = not isinstance(layer, attention.MaskedAttention)
            scores = to.op("Add", scores, _added(to, mask, q.dtype, allowed=allowed))
    if layer.is_causal:
        scores = to.where(_later(to, to.size(q, -2), to.size(k, -2)), -np.inf, scores)
    return to.op("MatMul", _softmax(to, scores, hides=hides), v)


def _softmax(to: Writer, scores: Value, *, hides: bool) -> Value:
    """Write a softmax of the last axis; rows that are hidden whole give zeros."""
    weights = to.op("Softmax", scores, axis=-1)
    if not hides:
        return weights
    top = to.op("ReduceMax", scores, [-1], keepdims=1)
    return to.where(to.op("Equal", top, -np.inf), 0, weights)


def _added(to: Writer, mask: Value, dtype: Any, *, allowed: bool) -> Value:
    kept = None if mask.constant is None else _without_copies(mask.constant)
    mask = mask if kept is None or kept is mask.constant else to.store(kept)
    if mask.dtype != BOOL:
        return to.cast(mask, dtype)
    hidden, seen = to.constant(-np.inf, dtype), to.constant(0, dtype)
    return to.where(mask, *((seen, hidden) if allowed else (hidden, seen)))


def _without_copies(mask: Array) -> Array:
    """Return a mask with one item along leading axes where all are equal: converters store it for every window."""
    for axis in range(mask.ndim - 2):
        first = mask[(slice(None),) * axis + (slice(1),)]
        mask = first if mask.shape[axis] > 1 and (mask == first).all() else mask
    return mask


def _later(to: Writer, rows: Operand, columns: Operand, before: Operand = 0) -> Value:
    """Write whether a key comes after a position."""
    row = to.op("Unsqueeze", to.counting(rows), [1])
    row = row + to.tensor(before, INT64) if isinstance(before, Value) or before else row
    return to.counting(columns) > row


def _for_every_head(to: Writer, x: Value, query: Value) -> Value:
    """Return keys or values with every head repeated for the query heads that it serves."""
    if x.rank < 3 or query.rank < 3:
        return x
    heads, groups = to.known((query.shape[-3], x.shape[-3]), "the number of heads")
    if heads == groups:
        return x
    sizes = x.all_sizes()
    wide = to.unsqueeze(x, x.rank - 2)
    counts = [heads // groups if axis == wide.rank - 3 else 1 for axis in range(wide.rank)]
    return to.reshape(to.op("Tile", wide, counts), [*sizes[:-3], heads, *sizes[-2:]])


@writes(attention.AttentionMask)
def attention_mask(to: Writer, layer: attention.AttentionMask, mask: Value, query: Value, key: Value) -> Value:
    if None in (*mask.shape, *query.shape, *key.shape):
        to.refuse("which axes a mask belongs to depends on dynamic sizes", "export the model with fixed sizes")
    return to.reshape(mask, to.inferred(layer, mask, query, key).shape)


@writes(attention.CausalMask)
def causal_mask(to: Writer, layer: attention.CausalMask, query: Value, key: Value, past: Value | None = None) -> Value:
    before = 0 if past is None else to.size(past, -2)
    later = _later(to, to.size(query, -2), to.size(key, -2), before)
    return to.where(later, to.constant(-np.inf, query.dtype), to.constant(0, query.dtype))
