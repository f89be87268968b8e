"""Attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.layers.attention import attention
from engine.onnx_writing.registry import writes
from engine.onnx_writing.rules.functions import times
from engine.onnx_writing.value import Value
from engine.onnx_writing.writer import BOOL, INT64, Writer
from engine.tensor import Array


@writes(attention.ScaledDotProductAttention)
def scaled_dot_product(
    to: Writer,
    layer: attention.ScaledDotProductAttention,
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None = None,
) -> Value:
    masks = [] if attn_mask is None else [attn_mask]
    return _attention(to, layer, query, key, value, masks, allowed=True)


@writes(attention.MaskedAttention)
def masked(
    to: Writer, layer: attention.MaskedAttention, query: Value, key: Value, value: Value, *masks: Value
) -> Value:
    return _attention(to, layer, query, key, value, masks, allowed=False)


def _attention(
    to: Writer,
    layer: attention.ScaledDotProductAttention,
    query: Value,
    key: Value,
    value: Value,
    masks: Sequence[Value],
    *,
    allowed: bool,
) -> Value:
    """Write softmax(query @ key.T * scale + masks) @ value.

    Args:
        allowed: whether True in a mask of bools lets a key take part; else it leaves it out.
    """
    dtype = attention._common(query.dtype, key.dtype, value.dtype)
    q, k, v = (to.cast(each, dtype) for each in (query, key, value))
    if layer.enable_gqa:
        k, v = (_for_every_head(to, each, q) for each in (k, v))
    (width,) = to.known(query.shape[-1:], "the width of a head")
    order = [*range(k.rank - 2), k.rank - 1, k.rank - 2]
    turned = to.transpose(k, order)
    scores = times(to, to.op("MatMul", q, turned), layer._scale(width))
    hides = layer.is_causal
    for mask in masks:
        hides = hides or mask.dtype == BOOL or mask.constant is None or bool(np.isinf(mask.constant).any())
        scores = to.op("Add", scores, _added(to, mask, dtype, allowed=allowed))
    if layer.is_causal:
        later = _later(to, to.size(q, -2), to.size(k, -2))
        scores = to.where(later, to.constant(-np.inf, dtype), scores)
    return to.op("MatMul", _softmax(to, scores, hides=hides), v)


def _softmax(to: Writer, scores: Value, *, hides: bool) -> Value:
    """Write a softmax of the last axis; rows that are hidden whole give zeros."""
    weights = to.op("Softmax", scores, axis=-1)
    if not hides:
        return weights
    top = to.op("ReduceMax", scores, to.constant([-1], INT64), keepdims=1)
    is_hidden = to.op("Equal", top, to.constant(-np.inf, scores.dtype), dtype=BOOL)
    return to.where(is_hidden, to.constant(0, scores.dtype), weights)


def _added(to: Writer, mask: Value, dtype: Any, *, allowed: bool) -> Value:
    kept = None if mask.constant is None else _without_copies(mask.constant)
    mask = mask if kept is None or kept is mask.constant else to.constant(kept)
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


def _later(to: Writer, rows: Any, columns: Any, before: Any = 0) -> Value:
    """Write whether a key comes after a position."""
    places = [
        to.op("Range", to.constant(0, INT64), to.tensor(each, INT64), to.constant(1, INT64)) for each in (rows, columns)
    ]
    row = to.op("Unsqueeze", places[0], to.constant([1], INT64))
    row = row if isinstance(before, int) and before == 0 else to.op("Add", row, to.tensor(before, INT64))
    return to.op("Greater", places[1], row, dtype=BOOL)


def _for_every_head(to: Writer, x: Value, query: Value) -> Value:
    """Return keys or values with every head repeated for the query heads that it serves."""
    if x.rank < 3 or query.rank < 3:
        return x
    heads, groups = to.known((query.shape[-3], x.shape[-3]), "the number of heads")
    if heads == groups:
        return x
    sizes = [to.size(x, axis) for axis in range(x.rank)]
    wide = to.unsqueeze(x, x.rank - 2)
    counts = [1] * wide.rank
    counts[-3] = heads // groups
    tiled = to.op("Tile", wide, to.constant(counts, INT64))
    return to.reshape(tiled, [*sizes[:-3], heads, *sizes[-2:]])


@writes(attention.AttentionMask)
def attention_mask(to: Writer, layer: attention.AttentionMask, mask: Value, query: Value, key: Value) -> Value:
    if None in (*mask.shape, *query.shape, *key.shape):
        to.refuse("which axes a mask belongs to depends on dynamic sizes", "export the model with fixed sizes")
    return to.reshape(mask, layer._shape(mask.shape, query.shape, key.shape))


@writes(attention.CausalMask)
def causal_mask(to: Writer, layer: attention.CausalMask, query: Value, key: Value, past: Value | None = None) -> Value:
    before = 0 if past is None else to.size(past, -2)
    later = _later(to, to.size(query, -2), to.size(key, -2), before)
    return to.where(later, to.constant(-np.inf, query.dtype), to.constant(0, query.dtype))
