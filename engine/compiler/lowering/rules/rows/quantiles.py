"""Quantiles: one or two places of the order of every row, and what lies between them."""

from __future__ import annotations

import math

import numpy as np

from engine.compiler.kernels.expr import Expr, Operand, apply
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.declining import FLOAT32, NotLoweredError
from engine.compiler.lowering.rules.elementwise.composing import Composition, derived
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.rules.rows.sorting import ordered
from engine.compiler.lowering.steps import Made
from engine.compiler.storage import row_major
from engine.layers.operands.axes import checked_axis
from engine.layers.sorting.order_statistics import Quantile

BELOW, ABOVE, LAST = Operand(0), Operand(1), Operand(2)


@kernels_for(Quantile)
def lower_quantile(context: Context) -> Made:
    """The value below which a share of the elements lies, for every share that is asked for."""
    layer, q, x = context.layer(Quantile), context.argument(1), context.tensor(0)
    if not isinstance(q, float | int | np.ndarray) or layer.ignores_nan or not x.shape:
        raise NotLoweredError("its shares are known only in a run, or some elements do not count")
    shares = np.asarray(q, np.float64).reshape(-1)
    if not shares.size or not ((shares >= 0) & (shares <= 1)).all():
        raise NotLoweredError("it has no shares, or such as there are none")
    composition = Composition(context)
    elements, _, steps = ordered(context, layer.dim)
    composition.steps.extend(steps)
    axis = 0 if layer.dim is None else checked_axis(layer.dim, len(x.shape))
    rows = elements.phantom.moveaxis(axis, -1).at_least(2)
    target = row_major([len(shares), *rows.shape[:-1]], FLOAT32)
    for number, share in enumerate(shares):
        low, high, tree = _between(layer, float(share) * (rows.shape[-1] - 1))
        views = [derived(elements, rows[..., place]) for place in (low, high, rows.shape[-1] - 1)]
        tree = apply("where", apply("isnan", LAST), float("nan"), tree)
        composition.map(tree, *views, target=derived(target, target.phantom[number]))
    result = composition.as_result(target)
    return context.made(result, *composition.steps)


def _between(layer: Quantile, at: float) -> tuple[int, int, Expr]:
    """The places around one that may lie between two, and the value there."""
    low, high = math.floor(at), math.ceil(at)
    if layer.interpolation in ("lower", "higher", "nearest"):
        place = {"lower": low, "higher": high, "nearest": round(at)}[layer.interpolation]
        return place, place, BELOW
    weight = np.float32(0.5 if layer.interpolation == "midpoint" else at - low)
    way = apply("sub", ABOVE, BELOW)
    if weight < 0.5:
        return low, high, apply("add", BELOW, apply("mul", way, float(weight)))
    return low, high, apply("sub", ABOVE, apply("mul", way, float(np.float32(1) - weight)))
