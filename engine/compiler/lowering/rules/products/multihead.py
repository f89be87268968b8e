"""Multi-head attention as a module: projections, attention, and an output projection."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from engine.compiler.lowering.context import Context
from engine.compiler.lowering.fusion import Result, unfused
from engine.compiler.lowering.rules.composition import Composition
from engine.compiler.lowering.rules.products.attention import attention_steps
from engine.compiler.lowering.rules.products.attention_operands import (
    AttentionOperands,
    MaskView,
    mask_of,
    unfused_attention,
)
from engine.compiler.lowering.rules.products.linear import linear, linear_step, rows_as_image
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import KernelStep, Lowered, NotLoweredError, derived
from engine.compiler.storage import FLOAT32, View, constant, row_major, spaced_rows
from engine.layers.attention.multihead import ATTENDED, WEIGHTS, MultiheadAttention, projections
from engine.layers.attention.multihead_operands import Arrangement, Masks
from engine.tensor import Array, TensorSpec


@kernels_for(MultiheadAttention, doubles=True)
def lower_multihead(context: Context) -> Lowered:
    """Lower one projection for equal operands, attention, and the output projection."""
    layer = context.layer(MultiheadAttention)
    operands = [context.argument(index) for index, _ in enumerate(context.arguments())]
    specs = [_spec(each) for each in operands]
    arrangement, sequences, masks = layer.roles(specs)
    kinds = layer.kinds(arrangement)
    steps: list[KernelStep] = []
    query, key, value = _projected(context, [context.tensor(index) for index in sequences], steps)
    added = layer.added(_attribute(context, "bias_k"), _attribute(context, "bias_v"), context.dtype)
    if added and (masks.attention is not None or masks.padding is not None):
        raise NotLoweredError("there is no kernel for keys that are added beside a mask")
    if added:
        key, value = (
            _with_rows(context, arrangement, each, [pair[k] for pair in added], steps)
            for k, each in enumerate((key, value))
        )
    target = spaced_rows(query.shape, context.dtype)
    heads = _Heads(arrangement)
    attn = AttentionOperands(
        query=heads.split(query),
        key=heads.split(key),
        value=heads.split(value),
        target=heads.split(target),
        masks=_masks(context, masks, heads),
        scale=1 / math.sqrt(layer.embed_dim // layer.num_heads),
        is_zero=WEIGHTS not in kinds,
    )
    weights = {}
    wanted = [index for index, kind in enumerate(kinds) if kind == WEIGHTS and _is_used(context, index)]
    if wanted or context.dtype != FLOAT32:
        found, further = unfused_attention(context, attn)
        steps += further
        weights = {context.op.outputs[index].name: _returned_weights(context, found, index, steps) for index in wanted}
    else:
        steps += attention_steps(context, attn)
    if ATTENDED not in kinds and weights:
        return Lowered(views=weights, steps=steps)
    weight, bias = _attribute(context, "out_proj_weight"), _attribute(context, "out_proj_bias")
    if ATTENDED not in kinds:
        raise NotLoweredError("its result is not used")
    if weight is None:
        raise NotLoweredError("its weights are not constant")
    lowered = linear(context, target, weight, bias, kinds.index(ATTENDED))
    return Lowered(views={**lowered.views, **weights}, steps=[*steps, *lowered.steps], fusions=lowered.fusions)


def _returned_weights(context: Context, weights: View, index: int, steps: list[KernelStep]) -> View:
    """Return the weights (batch, heads, queries, keys) as a result: all, or their mean over the heads."""
    spec = context.lowering.spec(context.op.outputs[index])
    if spec is None:
        raise NotLoweredError("its shape is known only at run time")
    if math.prod(spec.sizes) != weights.meta.size:
        composition = Composition(context)
        weights = composition.reduce(weights, [1], "mean")
        steps += composition.steps
    return derived(weights, weights.meta.reshape(spec.sizes))


@dataclass(frozen=True, slots=True)
class _Heads:
    """Heads of sequences in some arrangement."""

    arrangement: Arrangement

    def split(self, sequence: View) -> View:
        """View a sequence as (batch, heads, positions, width of a head)."""
        array = self.arrangement.to_batch_first(sequence.meta)
        heads = self.arrangement.heads
        return derived(sequence, array.reshape(*array.shape[:2], heads, array.shape[2] // heads).transpose(0, 2, 1, 3))


def _with_rows(
    context: Context, arrangement: Arrangement, sequence: View, rows: Sequence[Array], steps: list[KernelStep]
) -> View:
    """Return sequences with the same rows appended to each."""
    whole = derived(sequence, arrangement.to_batch_first(sequence.meta))
    batch, length, width = whole.shape
    longer = row_major((batch, length + len(rows), width), context.dtype)
    steps.append(context.copy(whole, derived(longer, longer.meta[:, :length])))
    for number, row in enumerate(rows, start=length):
        line = constant(np.ascontiguousarray(row.reshape(1, width)))
        place = derived(longer, longer.meta[:, number])
        steps.append(context.copy(derived(line, line.meta.broadcast_to((batch, width))), place))
    return derived(longer, arrangement.from_batch_first(longer.meta))


def _projected(context: Context, sequences: Sequence[View], steps: list[KernelStep]) -> list[View]:
    """Return projected query, key and value; those of one operand are computed together."""
    names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
    whole = _attribute(context, "in_proj_weight")
    weights = [_attribute(context, name) for name in names] if whole is None else [whole]
    known = [each for each in weights if each is not None]
    if len(known) < len(weights):
        raise NotLoweredError("its weights are not constant")
    parts = projections(known, _attribute(context, "in_proj_bias"), context.dtype)
    result: list[View] = []
    for _, group in groupby(range(3), key=lambda index: id(sequences[index].storage)):
        members = [*group]
        alike = all(_is_same(sequences[members[0]], sequences[each]) for each in members)
        for some in [members] if alike else [[each] for each in members]:
            weight = np.concatenate([parts[each][0] for each in some])
            biases = [bias for each in some if (bias := parts[each][1]) is not None]
            joined = _linear(context, sequences[some[0]], weight, np.concatenate(biases) if biases else None, steps)
            width = joined.shape[-1] // len(some)
            result += [derived(joined, joined.meta[..., k * width : (k + 1) * width]) for k in range(len(some))]
    return result


def _linear(context: Context, x: View, weight: Array, bias: Array | None, steps: list[KernelStep]) -> View:
    """Return a projected sequence."""
    rows, copies = context.rows(x)
    target = spaced_rows((*x.shape[:-1], len(weight)), context.dtype)
    result = Result.of(unfused(context.op), target, rows_as_image, context.lowering.fault_flag)
    steps += [*copies, linear_step(context, result, rows, weight, bias)]
    return target


def _masks(context: Context, masks: Masks, heads: _Heads) -> list[MaskView]:
    """Return the masks, as they broadcast to (batch, heads, queries, keys)."""
    found = []
    if masks.attention is not None:
        mask = mask_of(context, context.argument(masks.attention), "drop")
        if mask is not None and len(mask.view.shape) == 3:
            queries, columns = mask.view.shape[1:]
            mask = _shaped(mask, (-1, heads.arrangement.heads, queries, columns))
        found.append(mask)
    if masks.padding is not None:
        mask = mask_of(context, context.argument(masks.padding), "drop")
        if mask is not None:
            mask = _shaped(mask, (-1, 1, 1, mask.view.shape[-1]))
        found.append(mask)
    return [mask for mask in found if mask is not None]


def _shaped(mask: MaskView, sizes: tuple[int, ...]) -> MaskView:
    return replace(mask, view=derived(mask.view, mask.view.meta.reshape(sizes)))


def _attribute(context: Context, name: str) -> Array | None:
    """Return a weight of the module if it is known now, else None."""
    source = context.bound.keywords.get(name)
    if source is None or source.index is not None or not isinstance(source.constant, np.ndarray):
        return None
    if source.constant.dtype != context.dtype:
        raise NotLoweredError(f"its weights are {source.constant.dtype.name}")
    return source.constant


def _is_used(context: Context, index: int) -> bool:
    operand = context.op.outputs[index]
    return bool(operand.consumers) or operand.name in context.lowering.outputs


def _is_same(a: View, b: View) -> bool:
    return a.storage is b.storage and a.offset == b.offset and (a.shape, a.strides) == (b.shape, b.strides)


def _spec(value: object) -> TensorSpec:
    if not isinstance(value, View | np.ndarray):
        raise NotLoweredError("an operand is not a tensor")
    return TensorSpec(value.shape, value.dtype)
