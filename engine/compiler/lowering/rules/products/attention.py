"""Attention: one kernel from query, key and value to the output, with the masks in between."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from engine.compiler.kernels.attention.attention import Attention
from engine.compiler.kernels.attention.layout import choose_rows
from engine.compiler.kernels.attention.rows import Mask
from engine.compiler.kernels.expr import Operand, apply
from engine.compiler.kernels.products.arithmetic import Words
from engine.compiler.lowering.attention_chains import Chain, ChainMask
from engine.compiler.lowering.batched_matrices import merge_batch, split_batch
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.rules.composition import Composition
from engine.compiler.lowering.rules.products.attention_operands import (
    AttentionOperands,
    MaskView,
    in_groups,
    mask_of,
    unfused_attention,
)
from engine.compiler.lowering.rules.products.bfloat16 import prefers_bfloat16
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import KernelStep, Lowered, NotLoweredError, derived
from engine.compiler.storage import FLOAT32, View, spaced_rows
from engine.graph.operand import RuntimeOperand
from engine.ir.dims import is_symbolic
from engine.layers.attention.attention import MaskedAttention, ScaledDotProductAttention
from engine.passes import ATTENTION
from engine.passes.support.facts import is_static, only_consumer
from engine.passes.support.permutations import PERMUTATIONS, order_of
from engine.tensor import Array

# Most queries that are multiplied with a known and an unknown number of keys in rows, and those of a tile. For more
# queries, packed keys are faster.
MOST_DOTS = (4, 32)
DOT_ROWS = 8
# Fewest queries from which keys and values are worth packing as bfloat16.
LEAST_QUERIES = 32
PRODUCT = apply("mul", Operand(0), Operand(1))


@kernels_for(ScaledDotProductAttention, MaskedAttention, doubles=True)
def lower_attention(context: Context) -> Lowered:
    """Lower softmax(query @ key.T * scale + masks) @ value, with or without grouped heads."""
    layer = context.layer(ScaledDotProductAttention)
    query, key, value = (context.tensor(index) for index in range(3))
    kind: Literal["keep", "drop"] = "drop" if isinstance(layer, MaskedAttention) else "keep"
    masks = [mask for each in context.arguments()[3:] if (mask := mask_of(context, each, kind)) is not None]
    output = context.op.outputs[0]
    target = context.lowering.allocate(output, is_image=False, order=_order_of_reader(context, output))
    attn = AttentionOperands(
        query=query,
        key=key,
        value=value,
        target=target,
        masks=masks,
        scale=1 / math.sqrt(query.shape[-1]) if layer.scale is None else layer.scale,
        is_causal=layer.is_causal,
    )
    if layer.enable_gqa:
        attn = in_groups(attn)
    steps = attention_steps(context, attn) if context.dtype == FLOAT32 else unfused_attention(context, attn)[1]
    return context.lowered(target, *steps)


def _order_of_reader(context: Context, output: RuntimeOperand) -> tuple[int, ...] | None:
    """Return the memory order that makes a permutation of the result, which joins the heads, contiguous."""
    reader, spec = only_consumer(output), context.lowering.spec(output)
    layer = None if reader is None or not is_static(reader) else reader.definition
    if spec is None or layer is None or type(layer) not in PERMUTATIONS:
        return None
    return order_of(layer, spec.rank)


def lower_chain(context: Context, chain: Chain) -> Lowered:
    """Lower an attention chain in place of its last operator."""
    first, last, finest = chain.batches
    scaling = Composition(context)
    query = _factor(context, chain.query, first, finest)
    for each in chain.scales:
        query = scaling.map(
            PRODUCT, query, split_batch(context.stored(_value_of(context, each.source)), each.batch, finest)
        )
    columns = _factor(context, chain.columns, first, finest)
    output = context.op.outputs[0]
    target = context.lowering.allocate(output, is_image=False, order=_order_of_reader(context, output))
    attn = AttentionOperands(
        query=query,
        key=derived(columns, columns.meta.swapaxes(-1, -2)),
        value=_factor(context, chain.value, last, finest),
        target=split_batch(target, last, finest),
        masks=[_mask(context, mask, finest) for mask in chain.masks],
        scale=chain.scale,
        is_zero=chain.is_zero,
    )
    *copies, step = attention_steps(context, attn)
    steps = [*scaling.steps, *copies, replace(step, operators=chain.names)]
    return Lowered(
        views={context.op.outputs[0].name: target}, steps=steps, fusions={ATTENTION: [op.name for op in chain.inner]}
    )


def _factor(context: Context, factor: RuntimeOperand, stack: Sequence[int], finest: Sequence[int]) -> View:
    return split_batch(context.stored(context.lowering.value(factor)), stack, finest)


def _mask(context: Context, mask: ChainMask, finest: Sequence[int]) -> MaskView:
    found = mask_of(context, _value_of(context, mask.source), "keep" if mask.kind == "keep" else "drop")
    if found is None or (found.kind == "add") != (mask.kind == "add"):
        raise NotLoweredError("its mask has another dtype")
    return replace(found, view=split_batch(found.view, mask.batch, finest), fill=mask.fill, is_added=False)


def _value_of(context: Context, source: RuntimeOperand | Array) -> View | object:
    return source if isinstance(source, np.ndarray) else context.lowering.value(source)


def attention_steps(context: Context, attn: AttentionOperands) -> list[KernelStep]:
    """Return the kernel and its copies; for heads that are too wide, separate products and a softmax.

    Keys and values may be 16-bit floats if ``is_by_dots``.

    Raises:
        NotLoweredError: an operand is not stored as matrices.
    """
    steps: list[KernelStep] = []
    given, (queries, width), keys = attn, attn.query.shape[-2:], attn.key.shape[-2]
    by_dots = is_by_dots(attn)
    is_dynamic = not by_dots and is_symbolic((queries, keys)) and min(queries, keys) > 1
    words: Words = "bfloat16" if _prefers_bfloat16(context, attn) else "float"
    tiling = choose_rows(context.host, queries, keys, width, is_causal=attn.is_causal, words=words)
    attn = replace(
        attn,
        value=_in_rows(context, attn.value, steps),
        masks=[replace(mask, view=_in_lines(context, mask, steps)) for mask in attn.masks],
    )
    if is_dynamic:
        padded = _padded(context, attn.key, steps, tiling[1][0] * context.host.lanes)
        attn = replace(attn, key=padded)
    tiling = (min(queries, DOT_ROWS), tiling[1]) if by_dots else tiling
    kernel, views = _kernel(context, attn, tiling, is_padded=is_dynamic, by_dots=by_dots, words=words)
    if kernel.is_too_wide:
        return unfused_attention(context, given)[1]
    is_packed_there = (kernel.packs_once or kernel.packs_values) and 1 in (*attn.key.strides[-2:], width)
    if kernel.packs_keys and not is_packed_there:
        attn = replace(attn, key=_in_columns(context, attn.key, steps))
        kernel, views = _kernel(context, attn, tiling, words=words)
    return [*steps, context.step(kernel, *views)]


def _prefers_bfloat16(context: Context, attn: AttentionOperands) -> bool:
    """Return whether factors are rounded to bfloat16: sizes are known, and many queries share a key."""
    (queries, width), keys = attn.query.shape[-2:], attn.key.shape[-2]
    is_known = not is_symbolic((*attn.target.shape, keys))
    return is_known and queries >= LEAST_QUERIES and prefers_bfloat16(context, width, keys)


def _kernel(
    context: Context,
    attn: AttentionOperands,
    tiling: tuple[int, tuple[int, int]],
    *,
    is_padded: bool = False,
    by_dots: bool = False,
    words: Words = "float",
) -> tuple[Attention, list[View]]:
    """Return the kernel for operands in their layout, and its views."""
    query, key, value, target = attn.query, attn.key, attn.value, attn.target
    views = [query, key, value, target, *(mask.view for mask in attn.masks)]
    batch, matrices = merge_batch(target.shape[:-2], views)
    kernel = Attention(
        batch=batch,
        queries=query.shape[-2],
        keys=key.shape[-2],
        width=query.shape[-1],
        values=value.shape[-1],
        query=matrices[0],
        key=matrices[1],
        value=matrices[2],
        target=matrices[3],
        masks=tuple(
            Mask(matrix, mask.kind, mask.fill, mask.is_added)
            for matrix, mask in zip(matrices[4:], attn.masks, strict=True)
        ),
        scale=attn.scale,
        is_causal=attn.is_causal,
        is_zero=attn.is_zero,
        rows=tiling[0],
        vectors=tiling[1],
        is_padded=is_padded,
        by_dots=by_dots,
        dtype=key.dtype.name,
        words=words,
        host=context.host,
    )
    return kernel, views


def is_by_dots(attn: AttentionOperands) -> bool:
    """Return whether few queries are multiplied with keys in rows, as a decoder's cache has them."""
    queries, keys = attn.query.shape[-2], attn.key.shape[-2]
    is_in_rows = not attn.is_causal and all(each.strides[-1] == 1 for each in (attn.query, attn.key, attn.value))
    return is_in_rows and not is_symbolic(queries) and queries <= MOST_DOTS[is_symbolic(keys)]


def _in_columns(context: Context, key: View, steps: list[KernelStep]) -> View:
    """Return keys with contiguous columns, and add the copy this takes."""
    keys, width = key.shape[-2:]
    turned = spaced_rows((*key.shape[:-2], width, keys))
    columns = derived(turned, turned.meta.swapaxes(-1, -2))
    steps.append(context.copy(key, columns))
    return columns


def _padded(context: Context, key: View, steps: list[KernelStep], size: int) -> View:
    """Return keys in columns padded to a multiple of so many, so that code does not depend on their number."""
    keys, width = key.shape[-2:]
    lines = spaced_rows((*key.shape[:-2], width, -(-keys // size) * size))
    columns = derived(lines, lines.meta[..., :keys].swapaxes(-1, -2))
    steps.append(context.copy(key, columns))
    return columns


def _in_rows(context: Context, value: View, steps: list[KernelStep]) -> View:
    """Return values with contiguous rows, and add the copy this may take."""
    if value.strides[-1] == 1 or value.shape[-1] == 1:
        return value
    return context.copied(value, steps)


def _in_lines(context: Context, mask: MaskView, steps: list[KernelStep]) -> View:
    """Return a mask with contiguous rows, as matrices that broadcast to the scores."""
    view = mask.view
    if view.shape and view.shape[-1] > 1 and view.strides[-1] not in (0, 1):
        if mask.kind != "add":
            raise NotLoweredError("the rows of its mask are not contiguous")
        view = context.copied(view, steps)
    return derived(view, view.meta.reshape((1,) * (2 - len(view.shape)) + view.shape))
