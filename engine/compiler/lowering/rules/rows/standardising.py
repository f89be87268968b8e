"""Normalisation by what a tensor itself has for mean and variance: of groups, instances and batches; by neighbours."""

from __future__ import annotations

import math
from collections.abc import Sequence

from engine.compiler.kernels.expr import Expr, Number, Operand, apply
from engine.compiler.kernels.rows.layer_norm import LayerNorm as Kernel
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.declining import NotLoweredError
from engine.compiler.lowering.rules.elementwise.composing import Composition, derived
from engine.compiler.lowering.rules.elementwise.map import lower_map
from engine.compiler.lowering.rules.movement.padding import padded
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.rules.rows.standardising_images import is_an_image, standardised
from engine.compiler.lowering.steps import Made
from engine.compiler.lowering.terms.functions import power
from engine.compiler.storage import View, ordered, row_major
from engine.layers.normalisation.norm import BatchNorm, GroupNorm, InstanceNorm, LocalResponseNorm

X = Operand(0)
# Neighbouring channels that one expression adds up.
MOST_NEIGHBOURS = 32


@kernels_for(GroupNorm, doubles=True)
def lower_group_norm(context: Context) -> Made:
    """(x - mean) / sqrt(var + eps) * weight + bias, with the statistics of a group of channels."""
    x, layer, composition = context.tensor(0), context.layer(GroupNorm), Composition(context)
    if is_an_image(x):
        return standardised(composition, x, layer.num_groups, layer.eps, (1, 2))
    groups = x.shape[0] * layer.num_groups
    y = _standardised(composition, x, groups, layer.eps)
    return _with_affine(composition, y, 1)


@kernels_for(InstanceNorm, doubles=True)
def lower_instance_norm(context: Context) -> Made:
    """The same, every channel by itself; or with statistics that were given."""
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
def lower_batch_norm(context: Context) -> Made:
    """The statistics of the batch, or those that only a run can tell; known ones are a map like any other."""
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


def _scaled(composition: Composition, x: View, channel: int, mean: View, var: View, eps: float) -> Made:
    """x * scale + shift, both worked out by channel first."""
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
    """(x - mean) / sqrt(var + eps) of the elements that so many rows have, in logical order."""
    lines = composition.shaped(x, (rows, math.prod(x.shape) // rows))
    if lines.shape[1] > 1 and lines.strides[1] != 1:
        copied = row_major(lines.shape, lines.dtype)
        composition.steps.append(composition.context.copy(lines, copied))
        lines = copied
    target = row_major(lines.shape, lines.dtype)
    kernel = Kernel(
        rows=rows,
        columns=lines.shape[1],
        source=lines.strides[0],
        target=target.strides[0],
        eps=eps,
        is_centred=True,
        has_weight=False,
        has_bias=False,
        host=composition.context.host,
    )
    composition.steps.append(composition.context.step(kernel, lines, target))
    return derived(target, target.phantom.reshape(x.shape))


def _with_affine(composition: Composition, y: View, channel: int, places: Sequence[int] = (1, 2)) -> Made:
    """y * weight + bias, as far as there are any."""
    sizes, views = _by_channel(y, channel), [y]
    tree: Expr = X
    for name, place in zip(("mul", "add"), places, strict=True):
        view = composition.operand(place, sizes)
        if view is not None:
            tree = apply(name, tree, Operand(len(views)))
            views.append(view)
    return composition.finish(tree, *views)


@kernels_for(LocalResponseNorm, doubles=True)
def lower_local_response_norm(context: Context) -> Made:
    """x / (k + alpha * mean(x²))**beta, with the mean over neighbouring channels."""
    x, layer, composition = context.tensor(0), context.layer(LocalResponseNorm), Composition(context)
    channels = x.shape[1]
    before, after = min(layer.size // 2, channels), min((layer.size - 1) // 2, channels)
    if before + after >= MOST_NEIGHBOURS:
        raise NotLoweredError("there is no kernel for so many neighbouring channels")
    pairs = [(before, after) if axis == 1 else (0, 0) for axis in range(len(x.shape))]
    # In the order of the tensor itself: the map reads both.
    around = ordered([size + sum(pair) for size, pair in zip(x.shape, pairs, strict=True)], x.order, x.dtype)
    composition.steps.extend(padded(context, x, around, pairs, "constant"))
    neighbours = [derived(around, around.phantom[:, first : first + channels]) for first in range(before + after + 1)]
    total: Expr = apply("square", Operand(1))
    for index in range(2, len(neighbours) + 1):
        total = apply("add", total, apply("square", Operand(index)))
    scaled = apply("add", apply("mul", total, layer.alpha / layer.size), layer.k)
    return composition.finish(apply("div", X, power(scaled, Number(layer.beta))), x, *neighbours)
