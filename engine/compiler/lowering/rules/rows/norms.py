"""Reductions with arithmetic before and after them: norms, variances, logsumexp."""

from __future__ import annotations

import math

from engine.compiler.kernels.expr import Expr, Number, Operand, apply
from engine.compiler.kernels.rows.reduction import Mode
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.rules.composition import Composition
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import Lowered, NotLoweredError
from engine.compiler.lowering.terms.functions import power
from engine.compiler.storage import View
from engine.layers.definition.layer import Layer
from engine.layers.reduction.deviation import Norm, Spread
from engine.layers.reduction.reduction import LogSumExp, Reduction

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
