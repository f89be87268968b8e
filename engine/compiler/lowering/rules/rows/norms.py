"""Reductions with arithmetic before and after them: norms, variances, logsumexp."""

from __future__ import annotations

import math

from engine.compiler.kernels.expr import Expr, Number, Operand, apply, substitute
from engine.compiler.kernels.rows.reduction import Mode
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.fusion import Fused
from engine.compiler.lowering.rules.composition import Composition
from engine.compiler.lowering.rules.products.matmul import product
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import Lowered, NotLoweredError, derived
from engine.compiler.lowering.terms.functions import power
from engine.compiler.storage import View
from engine.layers.definition.layer import Layer
from engine.layers.operands.axes import checked_axis
from engine.layers.reduction.deviation import Norm, Spread
from engine.layers.reduction.distance import Cdist
from engine.layers.reduction.reduction import LogSumExp, Reduction
from engine.layers.reduction.scan import Diff

X, Y = Operand(0), Operand(1)


def _operand(context: Context) -> tuple[View, list[int]]:
    """Return the tensor and the axes that are reduced."""
    x = context.tensor(0)
    layer = context.layer(Layer)
    assert isinstance(layer, Reduction)
    axes = sorted(layer.axes(len(x.shape)))
    if not axes or not x.shape:
        raise NotLoweredError("there is no kernel for a reduction over no dimensions")
    return x, axes


def _result(composition: Composition, tree: Expr, *reduced: View) -> Lowered:
    """Lower an expression of reduced tensors."""
    return composition.finish(tree, *map(composition.as_result, reduced))


@kernels_for(LogSumExp, doubles=True)
def lower_log_sum_exp(context: Context) -> Lowered:
    """Lower log(sum(exp(x - shift))) + shift, with the maximum as shift, or 0 if that is not finite."""
    (x, axes), composition = _operand(context), Composition(context)
    top = composition.reduce(x, axes, "max")
    shift = composition.map(apply("where", apply("isfinite", X), X, 0.0), top)
    total = composition.reduce(composition.each(apply("exp", apply("sub", X, Y)), x, shift), axes, "sum")
    return _result(composition, apply("add", apply("log", X), Y), total, shift)


@kernels_for(Spread, doubles=True)
def lower_spread(context: Context) -> Lowered:
    """Lower the variance, in two passes, or the deviation."""
    (x, axes), composition = _operand(context), Composition(context)
    layer = context.layer(Spread)
    mean = composition.reduce(x, axes, "mean")
    squares = composition.each(apply("square", apply("sub", X, Y)), x, mean)
    given = layer.unbiased if layer.correction is None else layer.correction
    count = math.prod(x.shape[axis] for axis in axes)
    divisor = max(count - (1 if given is None else float(given)), 0.0)
    variance = apply("div", X, divisor)
    tree = apply("sqrt", variance) if layer.takes_root else variance
    return _result(composition, tree, composition.reduce(squares, axes, "sum"))


@kernels_for(Norm, doubles=True)
def lower_norm(context: Context) -> Lowered:
    """Lower the norm of vectors, of any order."""
    (x, axes), composition = _operand(context), Composition(context)
    p = context.layer(Norm).p
    before, mode, after = norm_of(2.0 if p is None or p == "fro" else float(p))
    return _result(composition, after, composition.reduce(composition.each(before, x), axes, mode))


def norm_of(p: float) -> tuple[Expr, Mode, Expr]:
    """Return a norm's function of every element, its reduction, and its function of the result."""
    size = apply("abs", X)
    if p == 2:
        return apply("square", X), "sum", apply("sqrt", X)
    if p == math.inf:
        return size, "max", X
    if p == -math.inf:
        return size, "min", X
    if p == 0:
        return apply("ne", X, 0.0), "sum", X
    if p == 1:
        return size, "sum", X
    return power(size, Number(p)), "sum", power(X, Number(1 / p))


# Most repeated differences, each a map of its own.
_MAX_DIFFERENCES = 8


@kernels_for(Cdist, doubles=True)
def lower_cdist(context: Context) -> Lowered:
    """Lower the distances between all rows of two operands; by a product where the reference uses one."""
    layer, composition = context.layer(Cdist), Composition(context)
    a, b = context.tensor(0), context.tensor(1)
    many = max(a.shape[-2], b.shape[-2]) > 25
    first = derived(a, a.meta[..., :, None, :])
    second = derived(b, b.meta[..., None, :, :])
    sizes = context.result_spec.sizes
    if layer.p != 2 or not (layer.compute_mode == 1 or (many and layer.compute_mode != 2)):
        before, mode, after = norm_of(float(layer.p))
        parts = composition.map(substitute(before, [apply("sub", X, Y)]), first, second)
        found = composition.reduce(parts, [len(sizes)], mode)
        return composition.finish(after, composition.as_result(found))
    squares = []
    for each, view in ((a, first), (b, second)):
        total = composition.reduce(composition.map(apply("square", X), each), [len(each.shape) - 1], "sum")
        spread = total.meta.reshape(view.shape[:-1])
        squares.append(derived(total, spread.broadcast_to(sizes)))
    distance = apply("sub", apply("add", Operand(1), Operand(2)), apply("mul", X, 2.0))
    tree = apply("sqrt", apply("max", distance, 0.0))
    fused = Fused(context.op.outputs[0], tree, tuple(squares), (context.op.name,))
    lowered = product(context, a, derived(b, b.meta.swapaxes(-1, -2)), fused)
    return Lowered(views=lowered.views, steps=[*composition.steps, *lowered.steps], fusions=lowered.fusions)


@kernels_for(Diff, doubles=True)
def lower_diff(context: Context) -> Lowered:
    """Lower repeated differences of neighbouring elements."""
    x, layer, composition = context.tensor(0), context.layer(Diff), Composition(context)
    if any(context.argument(index) is not None for index in range(1, len(context.bound.positional))):
        raise NotLoweredError("there is no kernel for differences with prepended or appended elements")
    axis = checked_axis(layer.dim, len(x.shape))
    if not 0 < layer.n <= _MAX_DIFFERENCES or layer.n >= x.shape[axis]:
        raise NotLoweredError("there is no kernel for this number of differences")
    for turn in range(layer.n):
        moved = x.meta.moveaxis(axis, 0)
        pair = [derived(x, part.moveaxis(0, axis)) for part in (moved[1:], moved[:-1])]
        if turn == layer.n - 1:
            return composition.finish(apply("sub", X, Y), *pair)
        x = composition.map(apply("sub", X, Y), *pair)
    raise NotLoweredError("it has no differences")
