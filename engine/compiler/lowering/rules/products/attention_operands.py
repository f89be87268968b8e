"""Operands of attention, and attention as separate kernels whose weights lie in memory.

The separate kernels are used where the weights are returned, or where the fused kernel does not apply.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from engine.compiler.kernels.expr import Expr, Operand, apply
from engine.compiler.kernels.rows.softmax import Softmax
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.rules.composition import Composition
from engine.compiler.lowering.rules.products.matmul import multiplied
from engine.compiler.lowering.steps import KernelStep, NotLoweredError, derived
from engine.compiler.storage import View, constant, row_major
from engine.promotion import broadcast_sizes

BOOL = np.dtype(np.bool_)
X, Y = Operand(0), Operand(1)
# Most elements of a causal mask.
_MAX_PLACES = 1 << 24


@dataclass(frozen=True, slots=True)
class MaskView:
    """Mask that broadcasts to the scores, and its effect; see ``Mask``."""

    view: View
    kind: Literal["add", "keep", "drop"]
    fill: float = -math.inf
    is_added: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionOperands:
    """Operands of attention.

    Args:
        query, key, value, target: (..., L, E), (..., S, E), (..., S, V) and (..., L, V).
        masks: that broadcast to (..., L, S), in their order.
        scale: of the scores.
        is_causal: query l sees the keys 0 to l.
        is_zero: whether a query that sees no key gives zeros; else NaN.
    """

    query: View
    key: View
    value: View
    target: View
    masks: Sequence[MaskView] = ()
    scale: float
    is_causal: bool = False
    is_zero: bool = True


def mask_of(context: Context, value: View | object, kind: Literal["keep", "drop"]) -> MaskView | None:
    """Return an argument that is a mask, or None; boolean masks are added as 0 and -inf, as ``kind`` says.

    Raises:
        NotLoweredError: it has another dtype, or is empty.
    """
    if value is None:
        return None
    if isinstance(value, np.ndarray):
        value = context.lowering.stored(value)
    if not isinstance(value, View) or value.meta.size == 0:
        raise NotLoweredError("its mask is not a tensor in memory")
    if value.dtype not in (context.dtype, BOOL):
        raise NotLoweredError(f"there are no kernels for masks of {value.dtype.name}")
    return MaskView(value, kind, is_added=True) if value.dtype == BOOL else MaskView(value, "add")


def in_groups(attn: AttentionOperands) -> AttentionOperands:
    """Split heads into groups that share a key and a value; with one query each, heads become a group's queries."""
    heads = attn.query.shape[-3] if len(attn.query.shape) > 2 else 1
    is_one = attn.query.shape[-2] == 1 and not attn.is_causal
    separate = {heads} if is_one else {1, heads}
    shared = {each.shape[-3] for each in (attn.key, attn.value) if len(each.shape) > 2} - separate
    if not shared:
        return attn
    if len(shared) > 1:
        raise NotLoweredError("its keys and values have different groups")
    (groups,) = shared

    def split(view: View) -> View:
        """Split (..., heads, a, b) to (..., groups, heads of a group, a, b), without a where it is the one query."""
        array = view.meta
        if array.ndim < 3:
            return view
        if array.shape[-3] == heads:
            parts = array.reshape(*array.shape[:-3], groups, -1, *array.shape[-2:])
            return derived(view, parts[..., 0, :] if is_one else parts)
        return view if is_one else derived(view, array[..., None, :, :])

    return replace(
        attn,
        query=split(attn.query),
        key=split(attn.key),
        value=split(attn.value),
        target=split(attn.target),
        masks=tuple(replace(mask, view=split(mask.view)) for mask in attn.masks),
    )


def unfused_attention(context: Context, attn: AttentionOperands, *, cap: float = 0.0) -> tuple[View, list[KernelStep]]:
    """Return the weights (..., L, S), and the steps that compute them and their product with the value.

    Args:
        cap: limit that scores approach before masks; 0 for none.
    """
    composition = Composition(context)
    query, key, target = attn.query, attn.key, attn.target
    turned = derived(key, key.meta.swapaxes(-1, -2))
    lead = broadcast_sizes(query.shape[:-2], key.shape[:-2], attn.value.shape[:-2])
    scores = row_major((*lead, query.shape[-2], key.shape[-2]), context.dtype)
    scaled = apply("mul", X, float(attn.scale))
    if cap:
        scaled = apply("mul", apply("tanh", apply("div", scaled, float(cap))), float(cap))
    wide = derived(query, query.meta.broadcast_to((*lead, *query.shape[-2:])))
    composition.steps += multiplied(context, wide, turned, scores, scaled)
    masks = [*attn.masks, *([_causal(scores.shape[-2:])] if attn.is_causal else [])]
    for mask in masks:
        composition.typed(scores, _masked(mask), scores, mask.view)
    weights = _softmax(composition, scores, is_zero=attn.is_zero)
    composition.steps += _stored(context, weights, attn.value, target)
    return weights, composition.steps


def _causal(sizes: Sequence[int]) -> MaskView:
    if math.prod(sizes) > _MAX_PLACES:
        raise NotLoweredError("there is no kernel for this many scores")
    return MaskView(constant(np.tri(*sizes, dtype=np.bool_)), "keep")


def _masked(mask: MaskView) -> Expr:
    if mask.kind == "add":
        return apply("add", X, Y)
    dropped = apply("add", X, mask.fill) if mask.is_added else mask.fill
    return apply("where", Y, X, dropped) if mask.kind == "keep" else apply("where", Y, dropped, X)


def _softmax(composition: Composition, scores: View, *, is_zero: bool) -> View:
    """Return the softmax of every row; zeros or NaN for a row that sees no key."""
    rows = derived(scores, scores.meta.reshape(-1, scores.shape[-1]))
    target = row_major(rows.shape, rows.dtype)
    kernel = Softmax.of(rows.shape, (rows.strides[0], target.strides[0]), composition.context.host)
    composition.steps.append(composition.context.step(kernel, rows, target))
    if is_zero:
        highest = composition.reduce(rows, [1], "max")
        composition.map(apply("where", apply("eq", Y, -math.inf), 0.0, X), target, highest, target=target)
    return derived(target, target.meta.reshape(scores.shape))


def _stored(context: Context, weights: View, value: View, target: View) -> list[KernelStep]:
    """Return the steps that store weights @ value in the target; through a copy where products cannot store so."""
    try:
        return multiplied(context, weights, value, target)
    except NotLoweredError:
        copied = row_major(target.shape, target.dtype)
        return [*multiplied(context, weights, value, copied), context.copy(copied, target)]
