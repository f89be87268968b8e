"""Convolutions of one channel to a few, whose filters are tall and narrow, with swapped axes.

With rows and columns exchanged the taps of a column are contiguous, and fill vectors that run along the sums
(``kernels/convolution/dots.py``). The image is copied for that; a filter so tall reads every pixel many times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from engine.compiler.kernels.convolution.dots import Dots, is_faster
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.fusion import Result, as_image, fuse_following, unfused
from engine.compiler.lowering.rules.composition import fuse_images
from engine.compiler.lowering.rules.convolution.conv_geometry import ConvParameters, border_of, spans_of
from engine.compiler.lowering.rules.convolution.conv_steps import Filters, computed
from engine.compiler.lowering.steps import KernelStep, Lowered, derived
from engine.compiler.storage import View, channels_last, ordered
from engine.ir.strided import Strided
from engine.tensor import Array

# Rows of taps from which the copy costs little compared with the products.
TALL = 8


def prefers_swapped_axes(context: Context, parameters: ConvParameters, weight: Array) -> bool:
    """Return whether swapped axes are faster; the weight is (O, I, KD, KH, KW)."""
    outputs, inputs, planes, down, across = weight.shape
    if inputs > 1 or planes > 1 or parameters.groups > 1 or parameters.depth is not None:
        return False
    is_narrow = TALL <= down > across and parameters.dilation == (1, 1)
    return is_narrow and is_faster(context.host, Dots(outputs, across, down, context.host.lanes))


def lower_swapped_axes(
    context: Context,
    x: View,
    before: Sequence[KernelStep],
    parameters: ConvParameters,
    sizes: Sequence[int],
    filters: Filters,
) -> Lowered:
    """Lower (N, 1, H, W) -> (N, O, *sizes), or both without the batch, with swapped axes.

    Args:
        x: the image, with a batch dimension.
        before: steps that compute it.
    """
    image, turned = derived(x, x.meta.swapaxes(2, 3)), _swapped(parameters)
    whole = _result_in_memory(context, image)
    rows, columns = spans_of(turned, image.shape[2:], (sizes[1], sizes[0]))
    border = border_of(rows, columns, image.shape[2:])
    copies: list[KernelStep] = []
    if image.strides[3] != 1 or any(border):
        lying = channels_last(image.shape, border, image.dtype)
        copies.append(context.copy(image, lying))
        image = lying
    weight, bias = filters
    result = whole.part(_swapped_image)
    steps = computed(context, image, result, turned, [*product(rows, columns)], (weight.swapaxes(3, 4), bias))
    return whole.lowered(*before, *copies, *steps)


def _result_in_memory(context: Context, image: View) -> Result:
    """Return the result, with swapped rows and columns in memory if the image is read without a copy."""
    sizes = context.result_spec.sizes
    if image.strides[3] != 1 or len(sizes) < 4:
        return fuse_images(context, 2)
    found = fuse_following(context.lowering, unfused(context.op), as_image)
    return Result.of(found, ordered(sizes, (0, 3, 2, 1), context.dtype), as_image, context.lowering.fault_flag)


def _swapped(parameters: ConvParameters) -> ConvParameters:
    """Return the parameters of the convolution with swapped axes."""
    top, left, bottom, right = parameters.border
    return replace(
        parameters,
        kernel=parameters.kernel[::-1],
        stride=parameters.stride[::-1],
        border=(left, top, right, bottom),
    )


def _swapped_image(array: Strided) -> Strided:
    """Return a result, with or without a batch dimension, as images with swapped axes."""
    return as_image(array if array.ndim > 3 else array[None]).swapaxes(2, 3)
