"""Attention kernel by kernel, its weights in memory: where they are wanted, or where no kernel does it at once."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from engine.compiler.kernels.expr import Expr, Operand, apply
from engine.compiler.kernels.rows.softmax import Softmax
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.declining import NotLoweredError
from engine.compiler.lowering.rules.elementwise.composing import Composition, derived
from engine.compiler.lowering.rules.products.attended import Attended, MaskView
from engine.compiler.lowering.rules.products.products import multiplied
from engine.compiler.lowering.steps import KernelStep
from engine.compiler.storage import View, constant, row_major
from engine.promotion import broadcast_sizes

X, Y = Operand(0), Operand(1)
# Of a mask that says what comes before what.
_MOST_PLACES = 1 << 24


def weighed(context: Context, attended: Attended, *, cap: float = 0.0) -> tuple[View, list[KernelStep]]:
    """The weights (..., L, S), and the steps that make them and store what is weighed.

    Args:
        cap: that scores are bent towards before masks; 0 for none.
    """
    composition = Composition(context)
    query, key, target = attended.query, attended.key, attended.target
    turned = derived(key, key.phantom.swapaxes(-1, -2))
    lead = broadcast_sizes(query.shape[:-2], key.shape[:-2], attended.value.shape[:-2])
    scores = row_major((*lead, query.shape[-2], key.shape[-2]), context.dtype)
    scaled = apply("mul", X, float(attended.scale))
    if cap:
        scaled = apply("mul", apply("tanh", apply("div", scaled, float(cap))), float(cap))
    wide = derived(query, query.phantom.broadcast_to((*lead, *query.shape[-2:])))
    composition.steps += multiplied(context, wide, turned, scores, scaled)
    masks = [*attended.masks, *([_causal(scores.shape[-2:])] if attended.is_causal else [])]
    for mask in masks:
        composition.typed(scores, _masked(mask), scores, mask.view)
    weights = _softmax(composition, scores, is_zero=attended.is_zero)
    composition.steps += _stored(context, weights, attended.value, target)
    return weights, composition.steps


def _causal(sizes: Sequence[int]) -> MaskView:
    if math.prod(sizes) > _MOST_PLACES:
        raise NotLoweredError("there is no kernel for so many scores")
    return MaskView(constant(np.tri(*sizes, dtype=np.bool_)), "keep")


def _masked(mask: MaskView) -> Expr:
    if mask.kind == "add":
        return apply("add", X, Y)
    dropped = apply("add", X, mask.fill) if mask.is_added else mask.fill
    return apply("where", Y, X, dropped) if mask.kind == "keep" else apply("where", Y, dropped, X)


def _softmax(composition: Composition, scores: View, *, is_zero: bool) -> View:
    """The softmax of every row; zeros of a row that sees nothing, or NaN."""
    rows = derived(scores, scores.phantom.reshape(-1, scores.shape[-1]))
    target = row_major(rows.shape, rows.dtype)
    kernel = Softmax(
        rows=rows.shape[0],
        columns=rows.shape[1],
        source=rows.strides[0],
        target=target.strides[0],
        host=composition.context.host,
    )
    composition.steps.append(composition.context.step(kernel, rows, target))
    if is_zero:
        highest = composition.reduce(rows, [1], "max")
        composition.map(apply("where", apply("eq", Y, -math.inf), 0.0, X), target, highest, target=target)
    return derived(target, target.phantom.reshape(scores.shape))


def _stored(context: Context, weights: View, value: View, target: View) -> list[KernelStep]:
    """weights @ value where it shall lie; copied there where products are not stored so."""
    try:
        return multiplied(context, weights, value, target)
    except NotLoweredError:
        apart = row_major(target.shape, target.dtype)
        return [*multiplied(context, weights, value, apart), context.copy(apart, target)]
