"""Pooling with windows, adaptive pooling, means over whole images, and the indices of largest elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np

from engine.compiler.kernels.expr import Number, Operand, apply
from engine.compiler.kernels.numbers import FLOAT
from engine.compiler.kernels.pooling.global_average import Of
from engine.compiler.kernels.pooling.pool import Pool as PoolKernel
from engine.compiler.kernels.pooling.pool_indices import PoolIndices
from engine.compiler.kernels.windows import WindowAxis
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.fusion import as_image
from engine.compiler.lowering.rules.composition import Composition, as_batch, elements_step, fold_channels, fuse_images
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import KernelStep, Lowered, NotLoweredError, dense_strides, derived
from engine.compiler.lowering.terms.functions import power
from engine.compiler.storage import View, channels_last, constant, row_major
from engine.ir.strided import Strided
from engine.layers.operands.precision import INT64
from engine.layers.pooling.adaptive_pool import AdaptiveAvgPool, AdaptiveMaxPool, AdaptivePool
from engine.layers.pooling.max_pool import MaxPool
from engine.layers.pooling.pool import AvgPool, LPPool, Pool
from engine.passes.support.byte_products import BYTES

# Largest index in int32.
_MAX_PLACES = 2**31 - 1
Mode = Literal["max", "average"]


def windows_of(layer: Pool, x: View, counts: Sequence[int]) -> list[WindowAxis]:
    """Return the windows of a layer along each axis, with so many outputs."""
    sizes = x.shape[2:]
    return [
        WindowAxis(
            size=size,
            count=count,
            kernel=window.kernel,
            stride=window.stride,
            dilation=window.dilation,
            padding=window.before,
            after=None if window.after == window.before else window.after,
        )
        for size, count, window in zip(sizes, counts, layer.windows_on(sizes), strict=True)
    ]


def even_windows(x: View, counts: Sequence[int]) -> list[WindowAxis]:
    """Return windows of adaptive pooling, so many along every axis."""
    return [
        WindowAxis(size=size, count=count, is_adaptive=True) for size, count in zip(x.shape[2:], counts, strict=True)
    ]


def three(axes: Sequence[WindowAxis]) -> Sequence[WindowAxis]:
    """Return the windows along planes, rows and columns."""
    return [WindowAxis(size=1, count=1)] * (3 - len(axes)) + list(axes)


def with_places(
    context: Context,
    spatial_rank: int,
    windows: Callable[[View, Sequence[int]], list[WindowAxis]],
    *,
    in_whole: bool = False,
) -> Lowered:
    """Lower largest elements and their indices, channels-last; or one of them, if only one is returned.

    Args:
        in_whole: whether indices count in the whole tensor, not in the image.
    """
    x, outputs = context.tensor(0), context.op.outputs
    if len(x.shape) == spatial_rank + 1:
        x = derived(x, x.meta[None])
    spec = context.lowering.spec(outputs[0])
    if spec is None or math.prod(x.shape[2:]) > _MAX_PLACES:
        raise NotLoweredError("there is no kernel for this many indices")
    counts = spec.sizes[-spatial_rank:]
    image, copies = context.image(x)
    values = channels_last((*x.shape[:2], *counts), dtype=x.dtype)
    places = row_major((x.shape[0], *counts, x.shape[1]), INT64)
    places = derived(places, places.meta.moveaxis(-1, 1))
    target, numbers = (derived(each, as_image(each.meta)) for each in (values, places))
    depth, down, across = three(windows(x, counts))
    kernel = PoolIndices(
        batch=target.shape[0],
        channels=x.shape[1],
        depth=depth,
        down=down,
        across=across,
        source=dense_strides(image),
        target=dense_strides(target),
        indices=dense_strides(numbers),
        host=context.host,
    )
    steps = [*copies, context.step(kernel, image, target, numbers)]
    if in_whole:
        steps.append(_global_indices(context, places, x.shape[2:]))
    views = [values, places]
    if len(spec.sizes) == spatial_rank + 1:
        views = [derived(each, each.meta[0]) for each in views]
    if len(outputs) == 1:
        views = [views[0 if spec.dtype == x.dtype else 1]]
    found = {each.name: view for each, view in zip(outputs, views, strict=True)}
    return Lowered(views=found, steps=steps)


def _global_indices(context: Context, places: View, sizes: Sequence[int]) -> KernelStep:
    """Return the step that turns indices in images into indices in the whole tensor."""
    n, channels = places.shape[:2]
    first = np.arange(n * channels).reshape(n, channels, *(1,) * len(sizes)) * math.prod(sizes)
    start = constant(first.astype(INT64))
    return elements_step(context, places, apply("add", Operand(0), Operand(1)), [places, start], "i64")


@kernels_for(MaxPool, AvgPool, image=True, doubles=True, of_bytes=True)
def lower_pool(context: Context) -> Lowered:
    """Lower the largest or the mean element of every window."""
    layer = context.layer(Pool)
    if context.dtype in BYTES and (not isinstance(layer, MaxPool) or layer.returns != 0):
        raise NotLoweredError("there is no kernel for its integers")
    if isinstance(layer, MaxPool) and layer.returns != 0:
        return with_places(context, layer.spatial_rank, partial(windows_of, layer), in_whole=layer.counts_in_whole)
    x, out = as_batch(context, layer.spatial_rank)
    axes = windows_of(layer, x, out)
    if not isinstance(layer, AvgPool):
        return pooled(context, x, "max", axes)
    counts_padding, divisor = layer.count_include_pad, layer.divisor_override
    return pooled(context, x, "average", axes, counts_padding=counts_padding, divisor=divisor)


@kernels_for(AdaptiveAvgPool, AdaptiveMaxPool, image=True, doubles=True)
def lower_adaptive(context: Context) -> Lowered:
    """Lower the mean or the largest element of windows that cover an image evenly."""
    layer = context.layer(AdaptivePool)
    if isinstance(layer, AdaptiveMaxPool) and layer.returns != 0:
        return with_places(context, layer.spatial_rank, even_windows)
    x, sizes = as_batch(context, layer.spatial_rank)
    is_mean = isinstance(layer, AdaptiveAvgPool)
    if is_mean and set(sizes) == {1} and len(context.result_spec.sizes) == len(x.shape):
        return mean_of_pixels(context, x, is_image=True)
    return pooled(context, x, "average" if is_mean else "max", even_windows(x, sizes))


@kernels_for(LPPool, image=True, doubles=True)
def lower_lp_pool(context: Context) -> Lowered:
    """Lower (taps * mean(x^p))^(1/p) of every window."""
    layer, composition = context.layer(LPPool), Composition(context)
    x = _operand(context, layer.spatial_rank)
    powers = composition.map(
        power(Operand(0), Number(layer.norm_type)), x, target=channels_last(x.shape, dtype=x.dtype)
    )
    means = channels_last(context.result_spec.sizes, dtype=x.dtype)
    image, target = (derived(view, as_image(view.meta)) for view in (powers, means))
    axes = windows_of(layer, x, means.shape[2:])
    composition.steps.append(context.step(_kernel(context, image, target, "average", axes), image, target))
    taps = math.prod(window.kernel for window in layer.windows)
    return composition.finish(power(apply("mul", Operand(0), taps), Number(1 / layer.norm_type)), means)


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
) -> Lowered:
    """Lower the largest or the mean element of windows of images (N, C, *S)."""
    image, copies = context.image(x)
    result = fuse_images(context, len(axes))
    options = {"counts_padding": counts_padding, "divisor": divisor, "epilogue": result.epilogue}
    kernel = _kernel(context, image, result.image, mode, axes, **options)
    return result.lowered(*copies, result.step(kernel, [image]))


def _kernel(
    context: Context, image: View, target: View, mode: Mode, axes: Sequence[WindowAxis], **options: Any
) -> PoolKernel:
    depth, down, across = three(axes)
    return PoolKernel(
        mode=mode,
        batch=target.shape[0],
        channels=image.shape[1],
        depth=depth,
        down=down,
        across=across,
        source=dense_strides(image),
        target=dense_strides(target),
        numbers=image.dtype.name if image.dtype in BYTES else FLOAT,
        host=context.host,
        **options,
    )


def mean_of_pixels(context: Context, x: View, *, is_image: bool, of: Of = "mean") -> Lowered:
    """Lower the mean over all pixels, or another reduction of them, to (N, C) or (N, C, 1, ...)."""
    image, copies = _one_image(context, x)
    result = context.fuse(_with_pixels, is_image=is_image)
    kernel = fold_channels(image, result.image, of, context.host, result.epilogue)
    return result.lowered(*copies, result.step(kernel, [image]))


def _one_image(context: Context, x: View) -> tuple[View, Sequence[KernelStep]]:
    """Return a tensor as (n, c, h, w) channels-last, with the planes of a volume one below the other."""
    if len(x.shape) != 5:
        return context.image(x)
    n, c, depth, height, width = x.shape
    steps: Sequence[KernelStep] = ()
    is_contiguous = depth == 1 or x.meta.strides[2] == height * x.meta.strides[3]
    if x.strides[1] != 1 or not is_contiguous:
        dense = channels_last(x.shape, dtype=x.dtype)
        x, steps = dense, [context.copy(x, dense)]
    return derived(x, x.meta.reshape(n, c, depth * height, width)), steps


def _with_pixels(array: Strided) -> Strided:
    """View (N, C) or (N, C, 1, ...) as (N, C, 1, 1)."""
    return array.reshape(*array.shape[:2], 1, 1)
