"""Transposed convolutions of images to few channels: an ordinary convolution to all phases, whose pixels are shuffled.

A pixel of a convolution's result holds what stride x stride pixels are, as channels; so vectors, which hold channels,
are full, where a kernel for each phase would fill one or three of their lanes. Shi et al. 2016 ("Is the deconvolution
layer the same as a convolutional layer?").
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from engine.compiler.kernels.expr import Operand
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.fusion import alone
from engine.compiler.lowering.layout.wishes import Border
from engine.compiler.lowering.result import Result, as_image
from engine.compiler.lowering.rules.convolution.conv_kernels import raw_strides
from engine.compiler.lowering.rules.convolution.conv_parameters import ConvParameters
from engine.compiler.lowering.rules.convolution.conv_steps import chosen_step
from engine.compiler.lowering.rules.elementwise.composing import Composition, derived
from engine.compiler.lowering.steps import Made
from engine.compiler.storage import View, channels_last
from engine.layers.convolution.conv_transpose import ConvTranspose
from engine.layers.operands.spatial import spread
from engine.tensor import Array

# Channels that are few: phases of their own fill less than half of any vector.
FEW_OUTPUTS = 4
# Channels of the convolution, and how many times as many pixels it may make as are kept between the paddings, or more.
MOST_OUTPUTS = 1024
MOST_CUT = 2
FEW_PIXELS = 4096


def shuffles(layer: ConvTranspose, weight: tuple[int, ...], x: tuple[int, ...], y: tuple[int, ...]) -> bool:
    """Whether a shuffled convolution is wanted; of shapes (C, O, KH, KW) and (N, ...)."""
    if layer.spatial_rank != 2 or layer.groups != 1 or any(each != 1 for each in layer.dilation):
        return False
    strides, paddings = spread(layer.stride, 2, "stride"), spread(layer.padding, 2, "padding", 0)
    axes = [*zip(x[2:], weight[2:], strides, paddings, y[2:], strict=True)]
    is_even = all(taps % stride == 0 for _, taps, stride, _, _ in axes)
    has_all = all(padding + kept <= (size - 1) * stride + taps for size, taps, stride, padding, kept in axes)
    made = math.prod(size * stride + taps for size, taps, stride, _, _ in axes)
    is_few = weight[1] <= FEW_OUTPUTS and 1 < math.prod(strides) <= MOST_OUTPUTS // weight[1]
    return is_even and has_all and is_few and made <= MOST_CUT * y[2] * y[3] + FEW_PIXELS


def border_of(layer: ConvTranspose, taps: tuple[int, ...]) -> Border:
    """Return the zeros that are wanted around the image."""
    rows, columns = (k // s - 1 for k, s in zip(taps, spread(layer.stride, 2, "stride"), strict=True))
    return rows, columns, rows, columns


def lower_shuffled(context: Context, layer: ConvTranspose, weight: Array, bias: Array | None) -> Made:
    """Lower (batch, inputs, height, width) -> (batch, outputs, height, width)."""
    x, composition, strides = context.tensor(0), Composition(context), spread(layer.stride, 2, "stride")
    image, copies = context.image(x, border_of(layer, weight.shape[2:]))
    composition.steps += copies
    phases = _convolved(composition, image, weight, bias, strides)
    batch, outputs, *kept = context.result_spec.sizes
    *_, height, width = phases.shape
    ground = channels_last((batch, outputs, height * strides[0], width * strides[1]))
    pixels = ground.phantom.reshape(batch, outputs, height, strides[0], width, strides[1]).transpose(0, 3, 5, 1, 2, 4)
    composition.map(Operand(0), phases, target=derived(ground, pixels))
    top, left = spread(layer.padding, 2, "padding", 0)
    part = ground.phantom[:, :, top : top + kept[0], left : left + kept[1]]
    return composition.finish(Operand(0), derived(ground, part))


def _convolved(
    composition: Composition, image: View, weight: Array, bias: Array | None, strides: Sequence[int]
) -> View:
    """Return the pixels of all phases: (batch, row phases, column phases, outputs, height, width)."""
    context, (inputs, outputs, *kernel) = composition.context, weight.shape
    batch, _, height, width = image.shape
    down, across = (taps // stride for taps, stride in zip(kernel, strides, strict=True))
    shape = batch, math.prod(strides) * outputs, height + down - 1, width + across - 1
    # Tap k belongs to phase k % stride; a convolution meets the taps of a phase backwards.
    taps = weight.reshape(inputs, outputs, down, strides[0], across, strides[1])[:, :, ::-1, :, ::-1]
    bank = taps.transpose(3, 5, 1, 0, 2, 4).reshape(shape[1], inputs, 1, down, across)
    known = None if bias is None else np.tile(bias, math.prod(strides))
    result = Result.seen(alone(context.op), channels_last(shape), as_image, context.lowering.alarm)
    source = raw_strides(image)
    origin = -image.dtype.itemsize * ((down - 1) * source.h + (across - 1) * source.w)
    parameters = ConvParameters(kernel=(down, across))
    composition.steps.append(chosen_step(context, result, parameters, image, (bank, known), source, origin))
    return derived(result.image, result.image.phantom.reshape(batch, *strides, outputs, *shape[2:]))
