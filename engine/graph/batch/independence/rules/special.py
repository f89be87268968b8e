"""Rules of layers that need more than their axes: arithmetic, images, products, tables, recurrence, attention."""

from __future__ import annotations

import math

from engine.expression import Call, Input, List, Node, infer, postorder
from engine.graph.batch.independence.operator import Operand, Use, aligned_items, common_items
from engine.graph.batch.independence.rules.table import Rule, broadcast, but_first, contracted, rows, rule
from engine.graph.batch.independence.values import SHARED, Items, Mixed, MixesError, Value
from engine.ir.sizes import has_sizes
from engine.layers.attention.attention import AttentionMask, CausalMask, ScaledDotProductAttention
from engine.layers.creation.container import Expression
from engine.layers.creation.scripted import RawTo
from engine.layers.elementwise import cast, complex, identity, piecewise
from engine.layers.linear import einsum
from engine.layers.normalisation import norm
from engine.layers.onnx.attention.grouped_attention import GroupQueryAttention
from engine.layers.onnx.products.matmul import MatMulInteger
from engine.layers.onnx.products.quantise import _Blocks
from engine.layers.onnx.vision.resize import Resize
from engine.layers.operands.axes import checked_axis
from engine.layers.pooling.max_pool import MaxPool
from engine.layers.quantised.quantise import FakeQuantizeChannels
from engine.layers.recurrent.recurrent import Recurrent
from engine.layers.sorting.searching import SearchSorted
from engine.tensor import TensorSpec, is_known, known_value


@rule(cast.To, cast.TypeAs, RawTo, identity.Identity, identity.RawIdentity, complex.Resolved,
      AttentionMask, takes_numbers=True)  # fmt: skip
def same(use: Use) -> Value:
    """Follow an input that is returned, possibly in another dtype or shape; of other operands only these count."""
    value = use.first.value
    if isinstance(value, Items) and value.is_numbered:
        dtypes = {spec.dtype for spec in use.results if isinstance(spec, TensorSpec)}
        if any(dtype.kind not in "iuf" or dtype.itemsize < 4 for dtype in dtypes):
            raise MixesError("computes with the item indices")
    return value


@rule(identity.Dropout)
def dropout(use: Use) -> Value:
    """Follow dropout in inference; in training it draws random numbers."""
    if getattr(use.layer, "training", False) or getattr(use.layer, "training_mode", False):
        raise MixesError("draws random numbers")
    return use.first.value


@rule(Expression, takes_numbers=True)
def expression(use: Use) -> Value:
    """Follow arithmetic on the operands; their sizes must not depend on the batch."""
    tree: Node = use.layer.tree
    if use.layer.shapes:
        raise MixesError("computes with the number of items")
    if isinstance(tree, List):
        return ([_computed(node, use) for node in tree.items],)
    return _computed(tree, use)


def _computed(tree: Node, use: Use) -> Value:
    """Return the abstract value of an expression tree."""
    if isinstance(tree, Input):
        return use.operands[tree.index].value
    read: list[Operand] = []
    for node in postorder(tree):
        if isinstance(node, List):
            raise MixesError("makes nested lists that depend on the items")
        if isinstance(node, Call) and node.function == "size":
            size = known_value(infer(node, [each.spec for each in use.operands]))
            if not is_known(size) or has_sizes(size):
                raise MixesError("computes with the number of items")
        elif isinstance(node, Call):
            read += [use.operands[arg.index] for arg in node.args if isinstance(arg, Input)]
    if any(each.is_items and each.value.is_numbered for each in read):
        raise MixesError("computes with the item indices")
    return broadcast(read)


@rule(piecewise.PReLU)
def prelu(use: Use) -> Value:
    """Follow a slope that is broadcast, or one for each channel, which is axis 1."""
    items, slope = use.items("input"), use["weight"]
    place = 1 if slope.rank < 2 else items.axis - use["input"].rank
    if math.prod(slope.shape) != 1 and (items.axis == place or (place < 0 and slope.length(place) != 1)):
        raise MixesError("has slopes that differ between items")
    return items


@rule(SearchSorted)
def search_sorted(use: Use) -> Value:
    """Follow values that are looked up in a shared table, or in their own row."""
    table = use["sorted_sequence"]
    if table.is_shared and table.rank == 1:
        return use.items("values")
    items = aligned_items(use.given("values", "sorted_sequence"))
    if items.axis == table.rank - 1:
        raise MixesError("searches along the batch axis")
    return items


@rule(norm.BatchNorm)
def batch_norm(use: Use) -> Value:
    """Follow channels with constant statistics; otherwise they depend on the batch."""
    if not use["running_mean"].is_given or not use["running_var"].is_given:
        raise MixesError("normalises with the statistics of the batch")
    return rows(but_first)(use)


@rule(MaxPool)
def max_pooled(use: Use) -> Value:
    """Follow a max pool; positions of ONNX files are those in the whole tensor."""
    layer = use.layer
    if use.first.rank != layer.spatial_rank + 2:
        raise MixesError("takes the batch axis as channels")
    items = rows(but_first)(use)
    if not layer.counts_in_whole or layer.returns == 0:
        return items
    places = Mixed("names places in the whole batch")
    return (items, places) if isinstance(layer.returns, slice) else places


@rule(Resize, takes_sizes=True)
def resized(use: Use) -> Value:
    """Follow some axes resampled; the batch axis by a scale of one, or to its own size."""
    source, layer = use["input"], use.layer
    if layer.coordinate_transformation_mode == "tf_crop_and_resize":
        raise MixesError("cuts a region out of the batch")
    given = [known_value(use[name].spec) for name in ("roi", "scales", "sizes")]
    if not source.is_items or not is_known(given):
        raise MixesError("takes sizes that are unknown before a run")
    changes = layer.changes(source.shape, *given)
    if source.value.axis in changes or any(has_sizes(each) for each in changes.values()):
        raise MixesError("resamples the batch axis")
    return source.value


@rule(MatMulInteger)
def matmul_integer(use: Use) -> Value:
    """Follow the product of matrices of integers; zero points are shared numbers, or vectors of a shared operand."""
    for name in ("a", "b"):
        if use[name].is_items and math.prod(use[f"{name}_zero_point"].shape) != 1:
            raise MixesError("has zero points that differ between items")
    return contracted("a", "b")(use)


@rule(einsum.Einsum)
def einsum_rule(use: Use) -> Value:
    """Follow sums of products by labels: the batch must have the same one everywhere, and keep it."""
    operands = use.others
    equation = use.layer.labelled([each.shape for each in operands])
    pairs = list(zip(operands, equation.terms, strict=True))
    items = common_items([each for each in operands if each.is_items])
    labels = {term[each.value.axis] for each, term in pairs if each.is_items}
    if len(labels) != 1:
        raise MixesError("combines operands that hold the batch along different axes")
    (label,) = labels
    if equation.output.count(label) != 1 or any(term.count(label) > 1 for term in equation.terms):
        raise MixesError("sums over the batch axis")
    for each, term in pairs:
        if not each.is_items and (not each.is_shared or (label in term and each.shape[term.index(label)] != 1)):
            raise MixesError("has a constant that differs between items")
    return items


@rule(_Blocks, FakeQuantizeChannels)
def quantised(use: Use) -> Value:
    """Follow numbers rounded to integers, or back, by shared scales."""
    items = use.items("input")
    scales = [each for each in (use["scale"], use["zero_point"]) if each.rank and each.shape != (1,)]
    axis = checked_axis(use.layer.axis, use["input"].rank) if scales else None
    if any(axis == items.axis or each.rank > 1 for each in scales):
        raise MixesError("has scales that differ between items")
    return items


@rule(Recurrent)
def recurrent(use: Use) -> Value:
    """Follow a network over the steps of each item; states hold the batch along their second axis."""
    first = 0 if use.layer.batch_first else 1
    axes = {"input": first, "initial_h": 1, "initial_c": 1, "lengths": 0}
    names = [name for name in axes if name in use.names and use[name].is_given]
    operands = use.given(*names)
    if use.layer.rounds == "all":
        raise MixesError("rounds by the extremes of the whole batch")
    if use["input"].rank != 3 or any(use[name].is_items and use[name].value.axis != axes[name] for name in names):
        raise MixesError("uses the batch axis as time steps")
    return common_items(operands)


@rule(ScaledDotProductAttention)
def attention(use: Use) -> Value:
    """Follow rows of queries, keys and values of each item and head; masks are broadcast to the scores."""
    rank = max(each.rank for each in use.operands)
    value = broadcast(use.operands, core=3 if use.layer.enable_gqa and rank > 3 else 2)
    if not all(each.is_items for each in use.operands[:3]):
        raise MixesError("attends to other items")
    return value


def _by_first_axis(*names: str, **ranks: int) -> Rule:
    """Return the rule of layers that treat each slice of the first axis of their operands by itself.

    Args:
        names: operands that hold the batch if they are given.
        ranks: operands that may hold it, with the rank at which their first axis is that of the batch.
    """

    def follow(use: Use) -> Value:
        held = [each for each in use.given(*names, *ranks) if each.is_items]
        if not all(use[name].is_items for name in names if use[name].is_given) or any(
            each.value.axis != 0 for each in held
        ):
            raise MixesError("attends to other items")
        for name, rank in ranks.items():
            each = use[name]
            if each.is_items and each.rank != rank:
                raise MixesError("attends to other items")
            if not each.is_items and (not each.is_shared or (each.rank == rank and each.shape[0] != 1)):
                raise MixesError("has a constant that differs between items")
        return common_items(held)

    return follow


rule(GroupQueryAttention)(
    _by_first_axis("query", "key", "value", "past_key", "past_value", "seqlens_k", "position_ids", attention_bias=4)
)


@rule(CausalMask)
def causal_mask(use: Use) -> Value:
    """Follow a mask that depends on sizes only."""
    if any(not each.is_shared and (not each.is_items or each.value.axis == each.rank - 2) for each in use.operands):
        raise MixesError("makes a mask over the items")
    return SHARED
