"""Pooling with windows, adaptive pooling, and means over whole images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Literal

from engine.compiler.kernels.axis import WindowAxis
from engine.compiler.kernels.expr import Number, Operand, apply
from engine.compiler.kernels.pooling.global_average import Of
from engine.compiler.kernels.pooling.pool import Pool as PoolKernel
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.declining import NotLoweredError
from engine.compiler.lowering.pixels import fold
from engine.compiler.lowering.result import as_image
from engine.compiler.lowering.rules.convolution.unbatched import batched, fused
from engine.compiler.lowering.rules.elementwise.composing import Composition, derived
from engine.compiler.lowering.rules.pooling.pool_axes import even_windows, three, windows_of
from engine.compiler.lowering.rules.pooling.pool_places import with_places
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import KernelStep, Made, dense_strides
from engine.compiler.lowering.terms.functions import power
from engine.compiler.storage import View, channels_last
from engine.ir.strided import Strided
from engine.layers.pooling.adaptive_pool import AdaptiveAvgPool, AdaptiveMaxPool, AdaptivePool
from engine.layers.pooling.max_pool import MaxPool
from engine.layers.pooling.pool import AvgPool, LPPool, Pool

Mode = Literal["max", "average"]


@kernels_for(MaxPool, AvgPool, image=True, doubles=True)
def lower_pool(context: Context) -> Made:
    """The largest or the mean element of every window."""
    layer = context.layer(Pool)
    if isinstance(layer, MaxPool) and layer.returns != 0:
        return with_places(context, layer.spatial_rank, partial(windows_of, layer), in_whole=not layer.dilation)
    x, out = batched(context, layer.spatial_rank)
    axes = windows_of(layer, x, out)
    if not isinstance(layer, AvgPool):
        return pooled(context, x, "max", axes)
    counts_padding, divisor = layer.count_include_pad, layer.divisor_override
    return pooled(context, x, "average", axes, counts_padding=counts_padding, divisor=divisor)


@kernels_for(AdaptiveAvgPool, AdaptiveMaxPool, image=True, doubles=True)
def lower_adaptive(context: Context) -> Made:
    """The mean or the largest element of windows that cover an image evenly."""
    layer = context.layer(AdaptivePool)
    if isinstance(layer, AdaptiveMaxPool) and layer.returns != 0:
        return with_places(context, layer.spatial_rank, even_windows)
    x, sizes = batched(context, layer.spatial_rank)
    is_mean = isinstance(layer, AdaptiveAvgPool)
    if is_mean and set(sizes) == {1} and len(context.result_spec.sizes) == len(x.shape):
        return mean_of_pixels(context, x, is_image=True)
    return pooled(context, x, "average" if is_mean else "max", even_windows(x, sizes))


@kernels_for(LPPool, image=True, doubles=True)
def lower_lp_pool(context: Context) -> Made:
    """(taps * mean(x^p))^(1/p) of every window."""
    layer, composition = context.layer(LPPool), Composition(context)
    x = _operand(context, layer.spatial_rank)
    powers = composition.map(
        power(Operand(0), Number(layer.norm_type)), x, target=channels_last(x.shape, dtype=x.dtype)
    )
    means = channels_last(context.result_spec.sizes, dtype=x.dtype)
    composition.steps.append(averaged(context, powers, means, windows_of(layer, x, means.shape[2:])))
    taps = math.prod(window.kernel for window in layer.windows)
    return composition.finish(power(apply("mul", Operand(0), taps), Number(1 / layer.norm_type)), means)


def averaged(
    context: Context, source: View, target: View, axes: Sequence[WindowAxis], *, divisor: int | None = None
) -> KernelStep:
    """The mean of every window of one tensor (N, C, *S) written to another, both channels last."""
    image, result = (derived(view, as_image(view.phantom)) for view in (source, target))
    depth, down, across = three(axes)
    kernel = PoolKernel(
        mode="average",
        batch=result.shape[0],
        channels=image.shape[1],
        depth=depth,
        down=down,
        across=across,
        divisor=divisor,
        source=dense_strides(image),
        target=dense_strides(result),
        host=context.host,
    )
    return context.step(kernel, image, result)


def _operand(context: Context, spatial_rank: int) -> View:
    x = context.tensor(0)
    if len(x.shape) != spatial_rank + 2:
        raise NotLoweredError("there is no kernel without a batch dimension")
    return x


def pooled(
    context: Context,
    x: View,
    mode: Mode,
    axes: Sequence[WindowAxis],
    *,
    counts_padding: bool = True,
    divisor: int | None = None,
) -> Made:
    """The largest or the mean element of windows of images (N, C, *S)."""
    image, copies = context.image(x)
    result = fused(context, len(axes))
    n, channels = result.image.shape[:2]
    depth, down, across = three(axes)
    kernel = PoolKernel(
        mode=mode,
        batch=n,
        channels=channels,
        depth=depth,
        down=down,
        across=across,
        counts_padding=counts_padding,
        divisor=divisor,
        source=dense_strides(image),
        target=dense_strides(result.image),
        host=context.host,
        epilogue=result.epilogue,
    )
    return result.made(*copies, result.step(kernel, [image]))


def mean_of_pixels(context: Context, x: View, *, is_image: bool, of: Of = "mean") -> Made:
    """The mean over all pixels, or what else is wanted of them, to (N, C) or (N, C, 1, ...)."""
    image, copies = _one_image(context, x)
    result = context.fuse(_with_pixels, is_image=is_image)
    kernel = fold(image, result.image, of, context.host, result.epilogue)
    return result.made(*copies, result.step(kernel, [image]))


def _one_image(context: Context, x: View) -> tuple[View, Sequence[KernelStep]]:
    """A tensor as (n, c, h, w) channels-last, the planes of a volume one below the other."""
    if len(x.shape) != 5:
        return context.image(x)
    n, c, depth, height, width = x.shape
    steps: Sequence[KernelStep] = ()
    is_piece = depth == 1 or x.phantom.strides[2] == height * x.phantom.strides[3]
    if x.strides[1] > 1 or not is_piece:
        dense = channels_last(x.shape, dtype=x.dtype)
        x, steps = dense, [context.copy(x, dense)]
    return derived(x, x.phantom.reshape(n, c, depth * height, width)), steps


def _with_pixels(array: Strided) -> Strided:
    """(N, C), means that dropped their dimensions, and (N, C, 1, ...) as (N, C, 1, 1)."""
    return array.reshape(*array.shape[:2], 1, 1)
