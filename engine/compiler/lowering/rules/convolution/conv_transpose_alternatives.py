"""Transposed convolutions that are faster in another form than one kernel for each phase of the stride.

Pixel shuffle, for images with few output channels: an ordinary convolution computes all phases as channels, which fill
the vectors; its pixels are then shuffled. Shi et al. 2016, "Is the deconvolution layer the same as a convolutional
layer?".

Overlap-add, for signals with few output channels or a large stride, as in filter banks: one product with all taps, then
a sum of what overlaps. Kernels of phases would be as many as the stride, and nearly empty with one output channel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from engine.compiler.kernels.expr import Operand, apply
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.fusion import Result, as_image, unfused
from engine.compiler.lowering.layout import Border
from engine.compiler.lowering.rules.composition import Composition
from engine.compiler.lowering.rules.convolution.conv_geometry import ConvParameters
from engine.compiler.lowering.rules.convolution.conv_kernels import raw_strides
from engine.compiler.lowering.rules.convolution.conv_steps import chosen_step
from engine.compiler.lowering.rules.products.linear import multiply_frames, overlap_add
from engine.compiler.lowering.steps import Lowered, derived
from engine.compiler.storage import FLOAT32, View, channels_last, constant, row_major
from engine.layers.convolution.conv_transpose import ConvTranspose
from engine.layers.operands.spatial import spread
from engine.tensor import Array

# Output channels up to which kernels of phases fill less than half of any vector.
FEW_OUTPUTS = 4
# Limits: channels of the convolution, computed pixels for each kept pixel, and extra pixels allowed.
MAX_OUTPUTS = 1024
MAX_CROPPED = 2
FEW_PIXELS = 4096
X, Y = Operand(0), Operand(1)
# Limit of the length of the sums, before cropping, for each element of the result.
MAX_CUT = 4
# Most inputs whose outputs overlap; all are in memory before they are summed.
MAX_OVERLAP = 16
# Most phases of an axis with kernels of their own.
MAX_PHASES = 16


def prefers_pixel_shuffle(
    layer: ConvTranspose, weight: tuple[int, ...], x: tuple[int, ...], y: tuple[int, ...]
) -> bool:
    """Return whether pixel shuffle is faster, for shapes (C, O, KH, KW) and (N, ...)."""
    if layer.spatial_rank != 2 or layer.groups != 1 or any(each != 1 for each in layer.dilation):
        return False
    strides, paddings = spread(layer.stride, 2, "stride"), spread(layer.padding, 2, "padding", 0)
    axes = [*zip(x[2:], weight[2:], strides, paddings, y[2:], strict=True)]
    is_even = all(taps % stride == 0 for _, taps, stride, _, _ in axes)
    has_all = all(padding + kept <= (size - 1) * stride + taps for size, taps, stride, padding, kept in axes)
    computed = math.prod(size * stride + taps for size, taps, stride, _, _ in axes)
    is_few = weight[1] <= FEW_OUTPUTS and 1 < math.prod(strides) <= MAX_OUTPUTS // weight[1]
    return is_even and has_all and is_few and computed <= MAX_CROPPED * y[2] * y[3] + FEW_PIXELS


def shuffle_border(layer: ConvTranspose, taps: tuple[int, ...]) -> Border:
    """Return the border of zeros that the image needs."""
    rows, columns = (k // s - 1 for k, s in zip(taps, spread(layer.stride, 2, "stride"), strict=True))
    return rows, columns, rows, columns


def lower_pixel_shuffle(context: Context, layer: ConvTranspose, weight: Array, bias: Array | None) -> Lowered:
    """Lower (batch, inputs, height, width) -> (batch, outputs, height, width)."""
    x, composition, strides = context.tensor(0), Composition(context), spread(layer.stride, 2, "stride")
    image, copies = context.image(x, shuffle_border(layer, weight.shape[2:]))
    composition.steps += copies
    phases = _convolved(composition, image, weight, bias, strides)
    batch, outputs, *kept = context.result_spec.sizes
    *_, height, width = phases.shape
    buffer = channels_last((batch, outputs, height * strides[0], width * strides[1]))
    pixels = buffer.meta.reshape(batch, outputs, height, strides[0], width, strides[1]).transpose(0, 3, 5, 1, 2, 4)
    composition.map(Operand(0), phases, target=derived(buffer, pixels))
    top, left = spread(layer.padding, 2, "padding", 0)
    part = buffer.meta[:, :, top : top + kept[0], left : left + kept[1]]
    return composition.finish(Operand(0), derived(buffer, part))


def _convolved(
    composition: Composition, image: View, weight: Array, bias: Array | None, strides: Sequence[int]
) -> View:
    """Return the pixels of all phases: (batch, row phases, column phases, outputs, height, width)."""
    context, (inputs, outputs, *kernel) = composition.context, weight.shape
    batch, _, height, width = image.shape
    down, across = (taps // stride for taps, stride in zip(kernel, strides, strict=True))
    shape = batch, math.prod(strides) * outputs, height + down - 1, width + across - 1
    # Tap k belongs to phase k % stride; the convolution has the taps of a phase in reverse.
    taps = weight.reshape(inputs, outputs, down, strides[0], across, strides[1])[:, :, ::-1, :, ::-1]
    bank = taps.transpose(3, 5, 1, 0, 2, 4).reshape(shape[1], inputs, 1, down, across)
    known = None if bias is None else np.tile(bias, math.prod(strides))
    result = Result.of(unfused(context.op), channels_last(shape), as_image, context.lowering.fault_flag)
    source = raw_strides(image)
    origin = -image.dtype.itemsize * ((down - 1) * source.h + (across - 1) * source.w)
    parameters = ConvParameters(kernel=(down, across))
    composition.steps.append(chosen_step(context, result, parameters, image, (bank, known), source, origin))
    return derived(result.image, result.image.meta.reshape(batch, *strides, outputs, *shape[2:]))


def prefers_overlap_add(context: Context, layer: ConvTranspose, outputs: int, taps: int) -> bool:
    """Return whether overlap-add is possible and faster: where outputs fill at most half a vector."""
    if layer.spatial_rank != 1 or layer.groups != 1 or layer.dilation != (1,) or context.dtype != FLOAT32:
        return False
    (stride,), count, kept = layer.stride, context.tensor(0).shape[2], context.result_spec.sizes[2]
    if (count - 1) * stride + taps > MAX_CUT * kept or taps > MAX_OVERLAP * stride:
        return False
    return stride > MAX_PHASES or (stride > 1 and 2 * outputs <= context.host.lanes)


def lower_overlap_add(context: Context, layer: ConvTranspose, weight: Array, bias: Array | None) -> Lowered:
    """Lower (batch, inputs, length) -> (batch, outputs, length)."""
    x, composition = context.tensor(0), Composition(context)
    (stride,), (padding,) = layer.stride, spread(layer.padding, 1, "padding", 0)
    inputs, outputs, taps = weight.shape
    batch, _, count = x.shape
    length = context.result_spec.sizes[2]
    frames = row_major((batch, count, outputs * taps), FLOAT32)
    lines = derived(frames, frames.meta.reshape(batch * count, -1))
    multiply_frames(
        composition, derived(x, x.meta.swapaxes(1, 2)), lines, np.ascontiguousarray(weight.reshape(inputs, -1).T)
    )
    by_output = frames.meta.reshape(batch, count, outputs, taps).swapaxes(1, 2)
    buffer = overlap_add(composition, derived(frames, by_output), stride, padding + length)
    kept = derived(buffer, buffer.meta[..., padding : padding + length])
    if bias is None:
        return composition.finish(X, kept)
    return composition.finish(apply("add", X, Y), kept, constant(bias.reshape(1, outputs, 1)))
