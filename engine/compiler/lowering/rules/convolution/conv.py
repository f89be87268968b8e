"""Lowering rule of convolutions with the element-wise operators after them, whole or in parts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from engine.compiler.kernels.convolution.dots import Dots, is_faster
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.fusion import Result, as_image, fuse_following, unfused
from engine.compiler.lowering.layout import BORDER_RULES, NO_BORDER, Border
from engine.compiler.lowering.rules.composition import as_batch, fuse_images
from engine.compiler.lowering.rules.convolution.conv_geometry import (
    ConvParameters,
    border_for,
    border_of,
    depth_of,
    parameters_of,
    plain_conv,
    spans_of,
)
from engine.compiler.lowering.rules.convolution.conv_kernels import winograd_filtering
from engine.compiler.lowering.rules.convolution.conv_steps import (
    Filters,
    as_filters,
    computed,
    weights_of,
    with_computed,
)
from engine.compiler.lowering.rules.movement.padding import padded_image
from engine.compiler.lowering.rules.products.bfloat16 import (
    image_as_bfloat16,
    prefers_bfloat16,
)
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import KernelStep, Lowered, NotLoweredError, derived
from engine.compiler.storage import View, channels_last, ordered
from engine.graph.operator import RuntimeOperator
from engine.ir.strided import Strided
from engine.layers.convolution import conv
from engine.layers.definition.layer import Layer
from engine.tensor import Array, TensorSpec

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


# Input channels from which a convolution is worth rounding its image, and those with at least so many taps.
LEAST_INPUTS = 16
LEAST_INPUTS_OF_TAPS, MANY_TAPS = 3, 9


def _wanted_border(op: RuntimeOperator, x: TensorSpec, y: TensorSpec) -> Border:
    layer, weight = op.definition, op.attributes.get("weight")
    kernel = tuple(weight.shape[2:]) if weight is not None else ()
    if not isinstance(layer, conv.Conv | conv.StridedSameConv) or not 1 <= len(kernel) <= 3:
        return NO_BORDER
    if not x.rank == y.rank == len(kernel) + 2:
        return NO_BORDER
    conv_, pairs = plain_conv(layer, x.sizes[2:], kernel)
    if conv_.padding_mode != "zeros":
        return NO_BORDER
    try:
        return border_for(parameters_of(conv_, kernel, pairs), x.sizes[2:], y.sizes[2:])
    except NotLoweredError:
        return NO_BORDER


BORDER_RULES[conv.Conv] = BORDER_RULES[conv.StridedSameConv] = _wanted_border


@kernels_for(conv.Conv, conv.StridedSameConv, image=True, doubles=True)
def lower_conv(context: Context) -> Lowered:
    """Lower a convolution of signals, images or volumes with the element-wise operators after it."""
    given, (weight, bias) = context.layer(Layer), weights_of(context)
    assert isinstance(given, conv.Conv | conv.StridedSameConv)
    kernel = weight.shape[2:]
    x, sizes = as_batch(context, len(kernel))
    layer, pairs = plain_conv(given, x.shape[2:], kernel)
    if type(layer) is not conv.Conv:
        raise NotLoweredError("there is no kernel for it")
    edges: Sequence[KernelStep] = ()
    if layer.padding_mode != "zeros" and any(map(any, pairs)):
        x, edges = padded_image(context, x, pairs, conv.PADDING_MODES[layer.padding_mode])
        pairs = ((0, 0),) * len(pairs)
    parameters = parameters_of(layer, kernel, pairs)
    if (depth := depth_of(layer, kernel, pairs, x.shape[2:], sizes)) is not None:
        parameters = replace(parameters, depth=depth)
    known = bias if isinstance(bias, np.ndarray) else None
    if isinstance(weight, np.ndarray) and prefers_swapped_axes(context, parameters, as_filters(weight)):
        return lower_swapped_axes(context, x, edges, parameters, sizes, (as_filters(weight), known))
    rows, columns = spans_of(parameters, x.shape[2:], sizes)
    border = border_of(rows, columns, x.shape[2:])
    if isinstance(weight, np.ndarray) and _prefers_bfloat16(context, parameters, weight, (x.shape[0], *sizes)):
        parameters = replace(parameters, words="bfloat16")
        image, copies = image_as_bfloat16(context, x, border)
    else:
        image, copies = context.image(x, border)
    result = fuse_images(context, len(kernel))
    parts = [*product(rows, columns)]
    if len(parts) > 1 and len(context.result_spec.sizes) == len(kernel) + 1:
        raise NotLoweredError("there is no kernel for several spans without a batch dimension")
    if isinstance(weight, View):
        filters = derived(weight, as_filters(weight.meta)), bias if isinstance(bias, View) else None
        return result.lowered(*edges, *copies, *with_computed(context, image, result, parameters, parts, filters))
    steps = computed(context, image, result, parameters, parts, (as_filters(weight), known))
    return result.lowered(*edges, *copies, *steps)


def _prefers_bfloat16(context: Context, parameters: ConvParameters, weight: Array, sizes: tuple[int, ...]) -> bool:
    """Return whether direct sums of bfloat16 are faster than any kernel of float32.

    Args:
        sizes: images, and pixels of the result.
    """
    (channels, inputs, *taps), (images, *pixels) = weight.shape, sizes
    least = LEAST_INPUTS_OF_TAPS if math.prod(taps) >= MANY_TAPS else LEAST_INPUTS
    is_plain = parameters.groups == 1 and len(taps) <= 2 and inputs >= least
    if not is_plain or not prefers_bfloat16(context, inputs + inputs % 2, channels):
        return False
    parameters, shape = replace(parameters, words="bfloat16"), (images, channels, *(1, *pixels)[-2:])
    return winograd_filtering(context, parameters, as_filters(weight), shape) is None


def pointwise_conv(context: Context, image: View, weight: Array, bias: Array | None, groups: int) -> Lowered:
    """Lower the result as a 1x1 convolution of an image that other kernels make; weight is (O, I, 1, 1)."""
    parameters, result = ConvParameters(kernel=(1, 1), groups=groups), context.fuse(as_image, is_image=True)
    rows, columns = spans_of(parameters, image.shape[2:], image.shape[2:])
    filters = as_filters(weight), bias
    return result.lowered(*computed(context, image, result, parameters, [*product(rows, columns)], filters))
