"""Convolutions that are faster in another form than the direct kernel.

im2col: a convolution with few output pixels in all, as at the end of deep networks. The direct kernel reads the weights
again for every few pixels of a line, and so many weights come from beyond the second-level cache each time. Here the
inputs of each pixel are gathered into a row, and the rows of all images multiplied at once. The gather costs little.

Swapped axes: a convolution of one channel to a few, whose filters are tall and narrow. With rows and columns exchanged
the taps of a column are contiguous, and fill vectors that run along the sums (``kernels/convolution/dots.py``). The
image is copied for that; a filter so tall reads every pixel many times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from engine.compiler.kernels.convolution.dots import Dots, is_faster
from engine.compiler.kernels.expr import Operand
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.fusion import Result, as_image, fuse_following, unfused
from engine.compiler.lowering.rules.composition import Composition, fuse_images
from engine.compiler.lowering.rules.convolution.conv_geometry import ConvParameters, border_of, spans_of
from engine.compiler.lowering.rules.convolution.conv_steps import Filters, computed
from engine.compiler.lowering.rules.movement.padding import fill
from engine.compiler.lowering.rules.products.linear import multiply_frames
from engine.compiler.lowering.steps import KernelStep, Lowered, derived
from engine.compiler.storage import FLOAT32, View, channels_last, ordered, row_major
from engine.ir.dims import is_symbolic
from engine.ir.strided import Strided
from engine.layers.convolution.conv import Conv
from engine.tensor import Array

# Limits of im2col: pixels of all images, pixels of a line, and taps, each of which is a copy.
MAX_PIXELS = 24
MAX_COLUMNS = 4
MAX_TAPS = 64


@dataclass(frozen=True, slots=True)
class _ValidTap:
    """Tap along an axis, and the outputs for which it lies within the image; each reads ``stride`` further."""

    tap: int
    first: int
    count: int
    begin: int
    stride: int

    @property
    def outputs(self) -> slice:
        return slice(self.first, self.first + self.count)

    @property
    def inputs(self) -> slice:
        return slice(self.begin, self.begin + (self.count - 1) * self.stride + 1, self.stride)


def prefers_im2col(context: Context, layer: Conv, weight: Array) -> bool:
    """Return whether im2col is faster; the weight is (O, I, *taps)."""
    if context.result_spec.rank != weight.ndim or layer.groups != 1 or context.dtype != FLOAT32:
        return False
    batch, _, *sizes = context.result_spec.sizes
    lines, taps = batch * math.prod(sizes[:-1]), math.prod(weight.shape[2:])
    if is_symbolic(context.result_spec.shape):  # which pixels meet a tap depends on the size
        return False
    is_small = lines > 1 and sizes[-1] <= MAX_COLUMNS and lines * sizes[-1] <= MAX_PIXELS
    is_large = weight.nbytes > context.host.memory.second_bytes and 1 < taps <= MAX_TAPS
    return is_small and is_large and layer.padding_mode == "zeros"


def lower_im2col(
    context: Context, layer: Conv, weight: Array, bias: Array | None, pairs: Sequence[tuple[int, int]]
) -> Lowered:
    """Lower (batch, inputs, *S) -> (batch, outputs, *T) by im2col.

    Args:
        pairs: zeros before and after each axis.
    """
    x, composition, kernel = context.tensor(0), Composition(context), weight.shape[2:]
    batch, outputs, *sizes = context.result_spec.sizes
    windows = zip(layer.windows_of(kernel), pairs, x.shape[2:], sizes, strict=True)
    axes = [_valid_taps(w.kernel, w.stride, w.dilation, before, size, count) for w, (before, _), size, count in windows]
    taps = [*product(*axes)]
    gathered = row_major((batch, *sizes, len(taps), x.shape[1]), FLOAT32)
    if any(each.count < count for tap in taps for each, count in zip(tap, sizes, strict=True)):
        composition.steps.append(fill(context, gathered, 0.0))
    for number, tap in enumerate(taps):
        seen = x.meta.moveaxis(1, -1)[(slice(None), *(each.inputs for each in tap))]
        place = gathered.meta[..., number, :][(slice(None), *(each.outputs for each in tap))]
        composition.map(Operand(0), derived(x, seen), target=derived(gathered, place))
    rows = derived(gathered, gathered.meta.reshape(1, batch * math.prod(sizes), -1))
    sums = row_major((batch, *sizes, outputs), FLOAT32)
    chosen = np.moveaxis(weight, 1, -1)[:, *np.array([[each.tap for each in tap] for tap in taps]).T]  # (O, taps, I)
    lines = derived(sums, sums.meta.reshape(-1, outputs))
    multiply_frames(composition, rows, lines, np.ascontiguousarray(chosen.reshape(outputs, -1)), bias)
    return composition.finish(Operand(0), derived(sums, sums.meta.moveaxis(-1, 1)))


def _valid_taps(kernel: int, stride: int, dilation: int, before: int, size: int, count: int) -> list[_ValidTap]:
    """Return the taps of an axis that meet the image."""
    found = []
    for tap in range(kernel):
        offset = tap * dilation - before
        first = max(0, -(offset // stride))
        last = min(count, (size - 1 - offset) // stride + 1)
        if first < last:
            found.append(_ValidTap(tap, first, last - first, first * stride + offset, stride))
    return found


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
