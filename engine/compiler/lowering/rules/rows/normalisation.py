"""Normalisation by the mean and variance of layers, groups, instances and batches, and by neighbouring channels.

Channels-last images are normalised where they lie. All channels have equally many pixels, so the mean of a group is the
mean of its channels' means, and its variance the mean of the channels' variances and of their squared distances from
it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from engine.compiler.kernels.expr import Expr, Number, Operand, apply
from engine.compiler.kernels.rows.layer_norm import LayerNorm as Kernel
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.fusion import as_image, lines_as_image
from engine.compiler.lowering.rules.composition import Composition
from engine.compiler.lowering.rules.elementwise.map import lower_map
from engine.compiler.lowering.rules.movement.padding import padded
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import Lowered, NotLoweredError, derived
from engine.compiler.lowering.terms.functions import power
from engine.compiler.storage import View, constant, ordered, row_major
from engine.layers.normalisation.layer_norm import LayerNorm, RMSNorm
from engine.layers.normalisation.norm import BatchNorm, GroupNorm, InstanceNorm, LocalResponseNorm
from engine.tensor import Array

X, Y, Z = Operand(0), Operand(1), Operand(2)


def is_an_image(x: View) -> bool:
    """Return whether a tensor (n, c, ...) lies channels-last, with several channels."""
    return x.is_image and x.shape[1] > 1


def standardised(composition: Composition, x: View, groups: int, eps: float, places: Sequence[int]) -> Lowered:
    """Lower (x - mean) / sqrt(var + eps) * weight + bias, for every item and group of channels.

    Args:
        x: an image, see is_an_image().
        places: numbers of the arguments that are weight and bias, of channels.
    """
    n, channels = x.shape[:2]
    inside = (n, groups, channels // groups)
    mean, var = _statistics(composition, x, groups)
    sizes = [1, channels, *(1,) * (len(x.shape) - 2)]
    weight, bias = (composition.operand(place, sizes) for place in places)
    tree: Expr = apply("reciprocal", apply("sqrt", apply("add", X, eps)))
    wide = [derived(var, var.meta.broadcast_to(inside))]
    if weight is not None:
        tree = apply("mul", tree, Y)
        wide.append(derived(weight, weight.meta.reshape(1, *inside[1:]).broadcast_to(inside)))
    scale = composition.map(tree, *wide)
    centre = composition.map(X, derived(mean, mean.meta.broadcast_to(inside)))
    by_channel = [derived(each, each.meta.reshape(n, *sizes[1:])) for each in (centre, scale)]
    result: Expr = apply("sub", X, Y)
    if bias is None:
        return composition.finish(apply("mul", result, Z), x, *by_channel)
    return composition.finish(apply("fma", result, Z, Operand(3)), x, *by_channel, bias)


def _statistics(composition: Composition, x: View, groups: int) -> tuple[View, View]:
    """Return mean and variance of every item and group, (n, groups, 1)."""
    (n, channels), context = x.shape[:2], composition.context
    image = derived(x, as_image(x.meta))
    means, spreads = (row_major((len(image.meta), channels), context.dtype) for _ in range(2))
    composition.fold_pixels(image, "mean", means)
    composition.fold_pixels(image, "spread", spreads, means)
    parts = [derived(each, each.meta.reshape(n, -1, groups, channels // groups)) for each in (means, spreads)]
    if parts[0].shape[1] * parts[0].shape[3] == 1:
        mean, var = parts
    else:
        mean = composition.reduce(parts[0], [1, 3], "mean")
        squared = apply("square", apply("sub", X, Y))
        var = composition.reduce(composition.map(apply("add", Z, squared), parts[0], mean, parts[1]), [1, 3], "mean")
    inside = (n, groups, 1)
    return derived(mean, mean.meta.reshape(inside)), derived(var, var.meta.reshape(inside))


# Most neighbouring channels in one expression.
MAX_NEIGHBOURS = 32


@kernels_for(GroupNorm, doubles=True)
def lower_group_norm(context: Context) -> Lowered:
    """Lower (x - mean) / sqrt(var + eps) * weight + bias, with the statistics of a group of channels."""
    x, layer, composition = context.tensor(0), context.layer(GroupNorm), Composition(context)
    if is_an_image(x):
        return standardised(composition, x, layer.num_groups, layer.eps, (1, 2))
    groups = x.shape[0] * layer.num_groups
    y = _standardised(composition, x, groups, layer.eps)
    return _with_affine(composition, y, 1)


@kernels_for(InstanceNorm, doubles=True)
def lower_instance_norm(context: Context) -> Lowered:
    """Lower group normalisation of single channels, or with given statistics."""
    x, layer, composition = context.tensor(0), context.layer(InstanceNorm), Composition(context)
    channel = 0 if layer.spatial is not None and len(x.shape) == layer.spatial + 1 else 1
    sizes = _by_channel(x, channel)
    mean, var = composition.operand(1, sizes), composition.operand(2, sizes)
    if mean is not None and var is not None and not layer.use_input_stats:
        return _scaled(composition, x, channel, mean, var, layer.eps)
    if channel == 1 and is_an_image(x):
        return standardised(composition, x, x.shape[1], layer.eps, (3, 4))
    y = _standardised(composition, x, math.prod(x.shape[: channel + 1]), layer.eps)
    return _with_affine(composition, y, channel, (3, 4))


@kernels_for(BatchNorm, doubles=True)
def lower_batch_norm(context: Context) -> Lowered:
    """Lower normalisation by the batch's or computed statistics; known statistics are an ordinary map."""
    if context.lowering.term(context.op) is not None:
        return lower_map(context)
    x, layer, composition = context.tensor(0), context.layer(BatchNorm), Composition(context)
    sizes = _by_channel(x, 1)
    mean, var = composition.operand(1, sizes), composition.operand(2, sizes)
    if mean is None or var is None:
        axes = [axis for axis in range(len(x.shape)) if axis != 1]
        mean = composition.reduce(x, axes, "mean")
        squares = composition.map(apply("square", apply("sub", X, Operand(1))), x, mean)
        var = composition.reduce(squares, axes, "mean")
    return _scaled(composition, x, 1, mean, var, layer.eps)


def _by_channel(x: View, channel: int) -> list[int]:
    return [size if axis == channel else 1 for axis, size in enumerate(x.shape)]


def _scaled(composition: Composition, x: View, channel: int, mean: View, var: View, eps: float) -> Lowered:
    """Lower x * scale + shift, both computed for every channel first."""
    sizes = _by_channel(x, channel)
    weight, bias = composition.operand(3, sizes), composition.operand(4, sizes)
    scale: Expr = apply("reciprocal", apply("sqrt", apply("add", X, eps)))
    scales = [var] if weight is None else [var, weight]
    scale_view = composition.map(scale if weight is None else apply("mul", scale, Operand(1)), *scales)
    shift: Expr = apply("mul", apply("neg", X), Operand(1))
    shifts = [mean, scale_view] if bias is None else [mean, scale_view, bias]
    shift_view = composition.map(shift if bias is None else apply("add", shift, Operand(2)), *shifts)
    return composition.finish(apply("fma", X, Operand(1), Operand(2)), x, scale_view, shift_view)


def _standardised(composition: Composition, x: View, rows: int, eps: float) -> View:
    """Return (x - mean) / sqrt(var + eps) over so many rows of elements in logical order."""
    lines = composition.shaped(x, (rows, math.prod(x.shape) // rows))
    if lines.shape[1] > 1 and lines.strides[1] != 1:
        lines = composition.context.copied(lines, composition.steps)
    target = row_major(lines.shape, lines.dtype)
    strides = lines.strides[0], target.strides[0]
    kernel = Kernel.of(lines.shape, strides, composition.context.host, eps=eps, is_centred=True)
    composition.steps.append(composition.context.step(kernel, lines, target))
    return derived(target, target.meta.reshape(x.shape))


def _with_affine(composition: Composition, y: View, channel: int, places: Sequence[int] = (1, 2)) -> Lowered:
    """Lower y * weight + bias, if there are any."""
    sizes, views = _by_channel(y, channel), [y]
    tree: Expr = X
    for name, place in zip(("mul", "add"), places, strict=True):
        view = composition.operand(place, sizes)
        if view is not None:
            tree = apply(name, tree, Operand(len(views)))
            views.append(view)
    return composition.finish(tree, *views)


@kernels_for(LocalResponseNorm, doubles=True)
def lower_local_response_norm(context: Context) -> Lowered:
    """Lower x / (k + alpha * mean(x²))**beta, with the mean over neighbouring channels."""
    x, layer, composition = context.tensor(0), context.layer(LocalResponseNorm), Composition(context)
    channels = x.shape[1]
    before, after = min(layer.size // 2, channels), min((layer.size - 1) // 2, channels)
    if before + after >= MAX_NEIGHBOURS:
        raise NotLoweredError("there is no kernel for this many neighbouring channels")
    pairs = [(before, after) if axis == 1 else (0, 0) for axis in range(len(x.shape))]
    # In the tensor's memory order, because the map reads both.
    around = ordered([size + sum(pair) for size, pair in zip(x.shape, pairs, strict=True)], x.order, x.dtype)
    composition.steps.extend(padded(context, x, around, pairs, "constant"))
    neighbours = [derived(around, around.meta[:, first : first + channels]) for first in range(before + after + 1)]
    total: Expr = apply("square", Operand(1))
    for index in range(2, len(neighbours) + 1):
        total = apply("add", total, apply("square", Operand(index)))
    scaled = apply("add", apply("mul", total, layer.alpha / layer.size), layer.k)
    return composition.finish(apply("div", X, power(scaled, Number(layer.beta))), x, *neighbours)


@kernels_for(LayerNorm, rows=True, doubles=True)
def lower_layer_norm(context: Context) -> Lowered:
    """Lower (x - mean) / sqrt(var + eps) * weight + bias over the last dimensions."""
    layer = context.layer(LayerNorm)
    if any(isinstance(context.argument(index), View) for index in (1, 2)):
        return _with_computed(context, layer.normalized_shape, (1, 2), eps=layer.eps, is_centred=True)
    scales = [context.optional_weight(index) for index in (1, 2)]
    return _normalised(context, layer.normalized_shape, scales, eps=layer.eps, is_centred=True)


@kernels_for(RMSNorm, rows=True, doubles=True)
def lower_rms_norm(context: Context) -> Lowered:
    """Lower x / sqrt(mean(x²) + eps) * weight over the last dimensions."""
    layer = context.layer(RMSNorm)
    eps = float(np.finfo(context.dtype).eps) if layer.eps is None else layer.eps
    if isinstance(context.argument(1), View):
        return _with_computed(context, layer.normalized_shape, (1,), eps=eps, is_centred=False)
    scales = [context.optional_weight(1), None]
    return _normalised(context, layer.normalized_shape, scales, eps=eps, is_centred=False)


def _normalised(
    context: Context, normalized_shape: tuple[int, ...], scales: list[Array | None], *, eps: float, is_centred: bool
) -> Lowered:
    x, columns = context.tensor(0), math.prod(normalized_shape)
    if any(scale is not None and scale.size != columns for scale in scales):
        raise NotLoweredError("its weight or bias has an unusual shape")
    rows, copies = context.rows(x, len(normalized_shape))
    result = context.fuse(partial(lines_as_image, columns=columns), is_image=False)
    kernel = Kernel.of(
        rows.shape,
        (rows.strides[0], result.image.strides[2]),
        context.host,
        eps=eps,
        is_centred=is_centred,
        has_weight=scales[0] is not None,
        has_bias=scales[1] is not None,
        epilogue=result.epilogue,
    )
    stored = [constant(scale.reshape(-1)) for scale in scales if scale is not None]
    return result.lowered(*copies, result.step(kernel, [rows], after=stored))


def _with_computed(
    context: Context, normalized_shape: tuple[int, ...], places: Sequence[int], *, eps: float, is_centred: bool
) -> Lowered:
    """Lower the norm with computed weights: a map after the norm."""
    x, columns, composition = context.tensor(0), math.prod(normalized_shape), Composition(context)
    rows, copies = context.rows(x, len(normalized_shape))
    target = row_major(x.shape, x.dtype)
    lines = derived(target, target.meta.reshape(-1, columns))
    kernel = Kernel.of(rows.shape, (rows.strides[0], columns), context.host, eps=eps, is_centred=is_centred)
    composition.steps.extend([*copies, context.step(kernel, rows, lines)])
    tree: Expr = Operand(0)
    views = [target]
    for name, place in zip(("mul", "add"), places, strict=False):
        view = composition.operand(place, normalized_shape)
        if view is not None:
            tree = apply(name, tree, Operand(len(views)))
            views.append(view)
    return composition.finish(tree, *views)
