"""Rules of recurrent networks and attention: the batch has a certain axis in each operand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.graph.batch.independence.rules.elementwise import broadcast
from engine.graph.batch.independence.rules.images import first_axis
from engine.graph.batch.independence.rules.table import rule
from engine.graph.batch.independence.use import Operand, Use
from engine.graph.batch.independence.values import SHARED, Items, MixesError, Value
from engine.layers.attention.attention import ScaledDotProductAttention
from engine.layers.attention.encoder import TransformerEncoderLayer
from engine.layers.attention.multihead import WEIGHTS, MultiheadAttention
from engine.layers.onnx.attention.attention import OnnxAttention, RotaryEmbedding
from engine.layers.onnx.attention.grouped_attention import CausalMask, GroupQueryAttention
from engine.layers.onnx.attention.state_space import LinearAttention
from engine.layers.onnx.recurrent.recurrent import DynamicQuantizeLSTM, OnnxRecurrent
from engine.layers.recurrent.recurrent import Recurrent


def _at(operand: Operand, axis: int) -> tuple[int, int]:
    """Return the layout of an operand that must have a certain batch axis.

    Raises:
        MixesError: it does not.
    """
    if not isinstance(operand.value, Items) or operand.value.axis != axis:
        raise MixesError("does not have the batch on the expected axis")
    return operand.value.layout


def _one_layout(layouts: Sequence[tuple[int, int]]) -> tuple[int, int]:
    if len(set(layouts)) != 1:
        raise MixesError("combines operands that hold the batch differently")
    return layouts[0]


@rule(Recurrent)
def recurrent(use: Use) -> Value:
    """Follow a network over the steps of each item; states hold the batch along their second axis."""
    layer: Any = use.layer
    names = ("input", "initial_h", "initial_c")
    use.only(*names)
    if use["input"].rank != 3:
        raise MixesError("uses the batch axis as time steps")
    first = 0 if layer.batch_first else 1
    given = [(use.find(name), first if name == "input" else 1) for name in names]  # only an LSTM has initial_c
    layout = _one_layout([_at(operand, axis) for operand, axis in given if operand.is_given])
    values = tuple(Items(first if name == "output" else 1, *layout) for name in layer.outputs)
    return values if len(values) > 1 else values[0]


@rule(OnnxRecurrent)
def onnx_recurrent(use: Use) -> Value:
    """Follow a recurrent network; the results are identified by their rank."""
    layer: Any = use.layer
    given = [each for each in use.operands if each.is_given]
    named = layer.named([each.spec for each in given])
    axes = {id(named.x): 1 - layer.layout, id(named.lengths): 0, id(named.h): 1 - layer.layout}
    axes[id(named.c)] = 1 - layer.layout
    axes.pop(id(None), None)
    layouts = []
    for each in given:
        if id(each.spec) in axes:
            layouts.append(_at(each, axes[id(each.spec)]))
        elif not each.is_shared:
            raise MixesError("has weights or parameters that depend on the items")
    layout = _one_layout(layouts)
    values = []
    for specs in use.results:
        rank = len(specs[1].shape)
        values.append(Items(0 if layer.layout else rank - 2, *layout))
    return tuple(values) if len(values) > 1 else values[0]


@rule(DynamicQuantizeLSTM)
def rounded_recurrent(use: Use) -> Value:
    """Follow an LSTM whose input and states are rounded between the extremes of all rows."""
    raise MixesError("rounds by the extremes of the whole batch")


@rule(ScaledDotProductAttention)
def attention(use: Use) -> Value:
    """Follow rows of queries, keys and values of each item and head; a mask is broadcast to the scores."""
    layer: Any = use.layer
    operands = [use[name] for name in ("query", "key", "value", "attn_mask")]
    value = broadcast(operands)
    if value == SHARED:
        return SHARED
    rank = max(each.rank for each in operands)
    heads = 3 if layer.enable_gqa and rank > 3 else 2
    if value.axis >= rank - heads or not all(use[name].is_items for name in ("query", "key", "value")):
        raise MixesError("attends to other items")
    return value


@rule(MultiheadAttention)
def multihead(use: Use) -> Value:
    """Follow attention with its projections; masks hold the batch along their first axis, or nothing of it."""
    layer: Any = use.layer
    if not all(each.is_shared for each in use.named.values()):
        raise MixesError("has weights or parameters that depend on the items")
    specs = [each.spec for each in use.others]
    arrangement, sequences, masks = layer.roles(specs)
    if arrangement.rank != 3:
        raise MixesError("attends to other items")
    axis = 0 if layer.batch_first else 1
    layout = _one_layout([_at(use.others[index], axis) for index in sequences])
    outer, inner = layout
    for index in (masks.attention, masks.padding):
        if index is not None and not use.others[index].is_shared:
            heads = layer.num_heads if index == masks.attention else 1
            if use.others[index].value != Items(0, outer, inner * heads):
                raise MixesError("has a mask that does not hold the batch along its first axis")
        elif index is not None and use.others[index].shape[0] != 1 and index == masks.padding:
            raise MixesError("has a mask that differs between items")
    values = tuple(Items(0 if kind is WEIGHTS else axis, *layout) for kind in layer.kinds(arrangement))
    return values if len(values) > 1 else values[0]


@rule(TransformerEncoderLayer)
def encoder(use: Use) -> Value:
    """Follow a layer of a transformer; its mask belongs to the items, or to none."""
    use.only("src", "mask")
    items = use.batch("src")
    mask = use["mask"]
    if items.axis or (not mask.is_shared and mask.value != items):
        raise MixesError("attends to other items")
    return items


@rule(OnnxAttention)
def onnx_attention(use: Use) -> Value:
    """Follow attention with earlier keys and values in front; masks of fewer than four axes are shared."""
    names = ("query", "key", "value")
    if any(not use[name].is_items or use[name].value != Items(0) for name in names):
        raise MixesError("attends to other items")
    for name in ("attn_mask", "past_key", "past_value", "nonpad_kv_seqlen"):
        each = use[name]
        if each.is_given and not (each.is_items or each.is_shared):
            raise MixesError("computes with the number of items")
        full = 1 if name == "nonpad_kv_seqlen" else 4
        if each.is_items and (each.value != Items(0) or each.rank != full):
            raise MixesError("attends to other items")
        if not each.is_items and each.is_given and each.rank == full and each.shape[0] != 1:
            raise MixesError("has a constant that differs between items")
    return Items(0)


@rule(RotaryEmbedding)
def rotary(use: Use) -> Value:
    """Follow pairs of channels rotated at given positions."""
    items = use.batch("input")
    ids = use["position_ids"]
    use.only("input", "position_ids", "cos_cache", "sin_cache")
    caches = [use[name] for name in ("cos_cache", "sin_cache")]
    if items != Items(0) or (ids.is_given and not ids.is_shared and ids.value != Items(0)):
        raise MixesError("rotates items by positions of other items")
    for each in (*caches, ids):
        if each.is_items and (each.value != Items(0) or (each is not ids and each.rank != 3)):
            raise MixesError("rotates items by positions of other items")
        if each.is_given and not each.is_items and each.rank == (2 if each is ids else 3) and each.shape[0] != 1:
            raise MixesError("has a constant that differs between items")
    return items


@rule(CausalMask)
def causal_mask(use: Use) -> Value:
    """Follow a mask that depends on sizes only."""
    if any(not each.is_shared and (not each.is_items or each.value.axis == each.rank - 2) for each in use.operands):
        raise MixesError("makes a mask over the items")
    return SHARED


@rule(GroupQueryAttention)
def group_query_attention(use: Use) -> Value:
    """Follow causal attention of every item after its own earlier keys."""
    batched = ("query", "key", "value", "past_key", "past_value", "seqlens_k", "position_ids")
    use.only(*batched, "attention_bias")
    bias = use["attention_bias"]
    if any(use[name].is_given and use[name].value != Items(0) for name in batched):
        raise MixesError("attends to other items")
    if bias.is_given and bias.value != Items(0) and (not bias.is_shared or (bias.rank == 4 and bias.shape[0] != 1)):
        raise MixesError("attends to other items")
    return Items(0)


@rule(LinearAttention)
def linear_attention(use: Use) -> Value:
    """Follow attention by a state of each item."""
    return first_axis(use, "query", "key", "value", "past_state", "decay", "beta")
