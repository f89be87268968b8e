"""Distances and norms of vectors and matrices, reductions with two results, reductions that ignore NaN."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from engine.compiler.kernels.expr import Expr, Operand, apply, substitute
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.fusion import Fused
from engine.compiler.lowering.rules.composition import Composition
from engine.compiler.lowering.rules.products.matmul import product
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.rules.rows.norms import norm_of
from engine.compiler.lowering.steps import Lowered, NotLoweredError, derived
from engine.compiler.storage import View
from engine.layers.definition.layer import Layer
from engine.layers.linear.linalg_norm import LinalgNorm, MatrixNorm
from engine.layers.normalisation.softmax import Softmin
from engine.layers.operands.axes import checked_axes, checked_axis
from engine.layers.reduction.deviation import DeviationMean, Distance, NormExceptDim, VarianceMean
from engine.layers.reduction.distance import Cdist, CosineSimilarity, PairwiseDistance
from engine.layers.reduction.extremum import AMinMax
from engine.layers.reduction.reduction import NanMean, NanSum
from engine.layers.reduction.scan import Diff
from engine.layers.shape.diagonal import Trace
from engine.promotion import broadcast_sizes

X, Y = Operand(0), Operand(1)
# Most repeated differences, each a map of its own.
_MAX_DIFFERENCES = 8


def _length(composition: Composition, p: float, tree: Expr, axes: Sequence[int] | None, *operands: View) -> Lowered:
    """Lower the norm of an expression along some axes, or all."""
    before, mode, after = norm_of(p)
    parts = composition.map(substitute(before, [tree]), *operands)
    if not parts.shape:
        raise NotLoweredError("its operand is a scalar")
    found = composition.reduce(parts, range(len(parts.shape)) if axes is None else axes, mode)
    return composition.finish(after, composition.as_result(found))


@kernels_for(PairwiseDistance, doubles=True)
def lower_pairwise(context: Context) -> Lowered:
    """Lower the norm of x1 - x2 + eps along the last axis."""
    layer, a, b = context.layer(PairwiseDistance), context.tensor(0), context.tensor(1)
    tree = apply("add", apply("sub", X, Y), float(layer.eps))
    last = max(len(a.shape), len(b.shape)) - 1
    return _length(Composition(context), float(layer.p), tree, [last], a, b)


@kernels_for(Distance, doubles=True)
def lower_distance(context: Context) -> Lowered:
    """Lower the norm of a difference over all elements."""
    tree = apply("sub", X, Y)
    p = float(context.layer(Distance).p)
    return _length(Composition(context), p, tree, None, context.tensor(0), context.tensor(1))


@kernels_for(NormExceptDim, doubles=True)
def lower_norm_except_dim(context: Context) -> Lowered:
    """Lower the norm of every slice along a dimension."""
    layer, x = context.layer(NormExceptDim), context.tensor(0)
    axes = None if layer.dim == -1 else [axis for axis in range(len(x.shape)) if axis != layer.dim]
    if axes == []:
        raise NotLoweredError("there is no kernel for a reduction over no dimensions")
    return _length(Composition(context), float(layer.pow), X, axes, x)


@kernels_for(LinalgNorm, MatrixNorm, doubles=True)
def lower_linalg_norm(context: Context) -> Lowered:
    """Lower the norm of vectors, or of matrices by the sums of their rows or columns."""
    layer, x, composition = context.layer(LinalgNorm), context.tensor(0), Composition(context)
    if layer.dtype is not None or not x.shape:
        raise NotLoweredError("there is no kernel for scalars, or with another dtype")
    axes = list(checked_axes(layer.dim, len(x.shape))) if layer.dim else list(range(len(x.shape)))
    if not layer.is_of_matrices(len(x.shape)):
        p = 2.0 if layer.ord is None or isinstance(layer.ord, str) else float(layer.ord)
        return _length(composition, p, X, axes, x)
    if layer.ord not in (1, -1, math.inf, -math.inf):
        raise NotLoweredError("there is no kernel for singular values")
    rows, columns = axes if abs(float(layer.ord)) == 1 else axes[::-1]
    sums = composition.reduce(composition.map(apply("abs", X), x), [rows], "sum")
    found = composition.reduce(sums, [columns], "max" if float(layer.ord) > 0 else "min")
    return composition.finish(X, composition.as_result(found))


@kernels_for(CosineSimilarity, doubles=True)
def lower_cosine_similarity(context: Context) -> Lowered:
    """Lower the sum of products of two normalised vectors."""
    layer, composition = context.layer(CosineSimilarity), Composition(context)
    a, b = context.tensor(0), context.tensor(1)
    sizes = broadcast_sizes(a.shape, b.shape)
    if not sizes:
        raise NotLoweredError("its operands are scalars")
    axis = checked_axis(layer.dim, len(sizes))
    wide = [derived(each, each.meta.broadcast_to(sizes)) for each in (a, b)]
    lengths = []
    for each in wide:
        squares = composition.reduce(composition.map(apply("square", X), each), [axis], "sum")
        lengths.append(composition.map(apply("max", apply("sqrt", X), float(layer.eps)), squares))
    tree = apply("mul", apply("div", X, Operand(2)), apply("div", Y, Operand(3)))
    found = composition.reduce(composition.map(tree, *wide, *lengths), [axis], "sum")
    return composition.finish(X, composition.as_result(found))


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
        return _length(composition, float(layer.p), apply("sub", X, Y), [len(sizes)], first, second)
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


@kernels_for(Softmin, doubles=True)
def lower_softmin(context: Context) -> Lowered:
    """Lower exp(min - x), divided by their sum."""
    x, composition = context.tensor(0), Composition(context)
    layer: Any = context.layer(Softmin)
    if not x.shape or layer.dim is None:
        raise NotLoweredError("its operand is a scalar, or its dimension is not known")
    axis = checked_axis(layer.dim, len(x.shape))
    low = composition.reduce(x, [axis], "min")
    powers = composition.map(apply("exp", apply("sub", Y, X)), x, low)
    return composition.finish(apply("div", X, Y), powers, composition.reduce(powers, [axis], "sum"))


def _reduced(context: Context) -> tuple[View, list[int], Composition]:
    x = context.tensor(0)
    layer: Any = context.layer(Layer)
    axes = sorted(layer.axes(len(x.shape)))
    if not axes or not x.shape:
        raise NotLoweredError("there is no kernel for a reduction over no dimensions")
    return x, axes, Composition(context)


@kernels_for(NanSum, NanMean, doubles=True)
def lower_of_numbers(context: Context) -> Lowered:
    """Lower the sum or mean of elements that are not NaN."""
    x, axes, composition = _reduced(context)
    is_missing = apply("isnan", X)
    total = composition.reduce(composition.map(apply("where", is_missing, 0.0, X), x), axes, "sum")
    if isinstance(context.layer(Layer), NanSum):
        return composition.finish(X, composition.as_result(total))
    numbers = composition.reduce(composition.map(apply("where", is_missing, 0.0, 1.0), x), axes, "sum")
    return composition.finish(apply("div", X, Y), composition.as_result(total), composition.as_result(numbers))


@kernels_for(VarianceMean, DeviationMean, doubles=True)
def lower_spread_and_mean(context: Context) -> Lowered:
    """Lower variance or deviation, and the mean."""
    x, composition = context.tensor(0), Composition(context)
    layer: Any = context.layer(Layer)
    if not x.shape:
        raise NotLoweredError("its operand is a scalar")
    axes = sorted(checked_axes(layer.dim, len(x.shape))) if layer.dim else list(range(len(x.shape)))
    mean = composition.reduce(x, axes, "mean")
    squares = composition.map(apply("square", apply("sub", X, Y)), x, mean)
    count = math.prod(x.shape[axis] for axis in axes)
    divisor = max(count - (1.0 if layer.unbiased is None else float(layer.unbiased)), 0.0)
    variance = apply("div", X, divisor)
    tree = apply("sqrt", variance) if isinstance(layer, DeviationMean) else variance
    return _pair(composition, composition.map(tree, composition.reduce(squares, axes, "sum")), mean)


@kernels_for(AMinMax, doubles=True)
def lower_extremes(context: Context) -> Lowered:
    """Lower the smallest and the largest element."""
    x, layer, composition = context.tensor(0), context.layer(AMinMax), Composition(context)
    if not x.shape:
        raise NotLoweredError("its operand is a scalar")
    axes = range(len(x.shape)) if layer.dim is None else [checked_axis(layer.dim, len(x.shape))]
    return _pair(composition, composition.reduce(x, axes, "min"), composition.reduce(x, axes, "max"))


def _pair(composition: Composition, *results: View) -> Lowered:
    outputs = composition.context.op.outputs
    if len(outputs) != len(results):
        raise NotLoweredError("its results are a list")
    views = {operand.name: composition.as_result(view) for operand, view in zip(outputs, results, strict=True)}
    return Lowered(views=views, steps=composition.steps)


@kernels_for(Trace, doubles=True)
def lower_trace(context: Context) -> Lowered:
    """Lower the sum of a diagonal."""
    x, composition = context.tensor(0), Composition(context)
    found = composition.reduce(derived(x, x.meta.diagonal()), [0], "sum")
    return composition.finish(X, composition.as_result(found))


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
