"""Lowering rule of convolutions with the element-wise operators after them, whole or in parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from engine.compiler.lowering.context import Context
from engine.compiler.lowering.fusion import as_image
from engine.compiler.lowering.layout import BORDER_RULES, NO_BORDER, Border
from engine.compiler.lowering.rules.composition import as_batch, fuse_images
from engine.compiler.lowering.rules.convolution.conv_alternatives import (
    lower_swapped_axes,
    prefers_swapped_axes,
)
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
from engine.compiler.lowering.rules.convolution.conv_steps import as_filters, computed, weights_of, with_computed
from engine.compiler.lowering.rules.movement.padding import padded_image
from engine.compiler.lowering.rules.products.bfloat16 import image_as_bfloat16, prefers_bfloat16
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import KernelStep, Lowered, NotLoweredError, derived
from engine.compiler.storage import View
from engine.graph.operator import RuntimeOperator
from engine.layers.convolution import conv
from engine.layers.definition.layer import Layer
from engine.tensor import Array, TensorSpec

# Input channels from which a convolution is worth rounding its image.
LEAST_INPUTS = 16


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
    is_plain = parameters.groups == 1 and len(taps) <= 2 and inputs >= LEAST_INPUTS
    if not is_plain or not prefers_bfloat16(context, inputs, channels):
        return False
    parameters, shape = replace(parameters, words="bfloat16"), (images, channels, *(1, *pixels)[-2:])
    return winograd_filtering(context, parameters, as_filters(weight), shape) is None


def pointwise_conv(context: Context, image: View, weight: Array, bias: Array | None, groups: int) -> Lowered:
    """Lower the result as a 1x1 convolution of an image that other kernels make; weight is (O, I, 1, 1)."""
    result = context.fuse(as_image, is_image=True)
    parameters = ConvParameters(kernel=(1, 1), groups=groups)
    sizes = image.shape[2:]
    rows, columns = spans_of(parameters, sizes, sizes)
    parts = [*product(rows, columns)]
    return result.lowered(*computed(context, image, result, parameters, parts, (as_filters(weight), bias)))
