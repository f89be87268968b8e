"""Transposed convolutions of images to few channels: an ordinary convolution to all phases, whose pixels are shuffled.

A pixel of a convolution's result holds what stride x stride pixels are, as channels; so vectors, which hold channels,
are full, where a kernel for each phase would fill one or three of their lanes. Shi et al. 2016 ("Is the deconvolution
layer the same as a convolutional layer?").
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np

from engine.compiler.kernels.expr import Operand
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.fusion import alone
from engine.compiler.lowering.layout.wishes import Border
from engine.compiler.lowering.result import Result, as_image
from engine.compiler.lowering.rules.convolution.conv_kernels import direct, flat_filters, raw_strides
from engine.compiler.lowering.rules.convolution.conv_parameters import ConvParameters
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


@dataclass(frozen=True, slots=True)
class _Phases:
    """Phases of an axis, outputs ``first`` to ``stop`` of every stride, that sum over the same number of taps."""

    taps: int
    first: int
    stop: int
    stride: int

    @property
    def count(self) -> int:
        return self.stop - self.first

    @property
    def chosen(self) -> Array:
        """The taps, (phases, taps): backwards, as a convolution meets them."""
        return np.arange(self.first, self.stop)[:, None] + self.stride * np.arange(self.taps - 1, -1, -1)


def shuffles(layer: ConvTranspose, weight: tuple[int, ...], x: tuple[int, ...], y: tuple[int, ...]) -> bool:
    """Whether a shuffled convolution is wanted; of shapes (C, O, KH, KW) and (N, ...)."""
    if layer.spatial_rank != 2 or layer.groups != 1 or any(each != 1 for each in layer.dilation):
        return False
    strides, paddings = spread(layer.stride, 2, "stride"), spread(layer.padding, 2, "padding", 0)
    axes = [*zip(x[2:], weight[2:], strides, paddings, y[2:], strict=True)]
    is_met = all(stride <= taps for _, taps, stride, _, _ in axes)
    has_all = all(padding + kept <= (size - 1) * stride + taps for size, taps, stride, padding, kept in axes)
    made = math.prod(size * stride + taps for size, taps, stride, _, _ in axes)
    is_few = weight[1] <= FEW_OUTPUTS and 1 < math.prod(strides) <= MOST_OUTPUTS // weight[1]
    return is_met and has_all and is_few and made <= MOST_CUT * y[2] * y[3] + FEW_PIXELS


def border_of(layer: ConvTranspose, taps: tuple[int, ...]) -> Border:
    """The zeros that are wanted around the image."""
    rows, columns = (-(-k // s) - 1 for k, s in zip(taps, spread(layer.stride, 2, "stride"), strict=True))
    return rows, columns, rows, columns


def lower_shuffled(context: Context, layer: ConvTranspose, weight: Array, bias: Array | None) -> Made:
    """(batch, inputs, height, width) -> (batch, outputs, height, width)."""
    x, composition, strides = context.tensor(0), Composition(context), spread(layer.stride, 2, "stride")
    image, copies = context.image(x, border_of(layer, weight.shape[2:]))
    composition.steps += copies
    batch, outputs, *kept = context.result_spec.sizes
    whole = [size * s + k for size, k, s in zip(x.shape[2:], weight.shape[2:], strides, strict=True)]
    ground = channels_last((batch, outputs, *(-(-size // s) * s for size, s in zip(whole, strides, strict=True))))
    for phases in product(*map(_phases, weight.shape[2:], strides)):
        found = _convolved(composition, image, weight, bias, phases)
        composition.map(Operand(0), found, target=derived(ground, _shuffled(ground.phantom, phases, found.shape)))
    top, left = spread(layer.padding, 2, "padding", 0)
    part = ground.phantom[:, :, top : top + kept[0], left : left + kept[1]]
    return composition.finish(Operand(0), derived(ground, part))


def _phases(taps: int, stride: int) -> list[_Phases]:
    """All phases, by how many taps they meet: none meets taps of nothing, for that times infinity would be NaN."""
    least, more = divmod(taps, stride)
    found = [_Phases(least + 1, 0, more, stride), _Phases(least, more, stride, stride)]
    return [each for each in found if each.count]


def _convolved(
    composition: Composition, image: View, weight: Array, bias: Array | None, phases: Sequence[_Phases]
) -> View:
    """The pixels of some phases, (batch, rows of phases, columns of phases, outputs, height, width)."""
    context, (down, across) = composition.context, phases
    inputs, outputs = weight.shape[:2]
    batch, _, height, width = image.shape
    shape = batch, down.count * across.count * outputs, height + down.taps - 1, width + across.taps - 1
    apart = weight[:, :, down.chosen[:, None, :, None], across.chosen[None, :, None, :]]
    bank = apart.transpose(2, 3, 1, 0, 4, 5).reshape(shape[1], inputs, 1, down.taps, across.taps)
    known = None if bias is None else np.tile(bias, down.count * across.count)
    result = Result.seen(alone(context.op), channels_last(shape), as_image, context.lowering.alarm)
    source = raw_strides(image)
    parameters = ConvParameters(kernel=(down.taps, across.taps))
    kernel = direct(context, result, parameters, bank, source, raw_strides(result.image))
    packed = context.lowering.packed(kernel.packing, (bank, known), partial(kernel.pack, flat_filters(bank), known))
    origin = -image.dtype.itemsize * ((down.taps - 1) * source.h + (across.taps - 1) * source.w)
    composition.steps.append(result.step(kernel, [image, packed], origin=origin))
    seen = result.image.phantom.reshape(batch, down.count, across.count, outputs, *shape[2:])
    return derived(result.image, seen)


def _shuffled(ground: Array, phases: Sequence[_Phases], shape: tuple[int, ...]) -> Array:
    """Where such pixels lie in (batch, outputs, height, width)."""
    batch, outputs, *sizes = ground.shape
    (down, across), (*_, height, width) = phases, shape
    turned = ground.reshape(batch, outputs, sizes[0] // down.stride, down.stride, -1, across.stride)
    part = turned[:, :, :height, down.first : down.stop, :width, across.first : across.stop]
    return part.transpose(0, 3, 5, 1, 2, 4)
