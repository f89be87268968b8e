"""Convolutions of one channel to a few whose filters are tall and narrow: rows and columns change places.

The taps of a column then follow each other in memory, and fill vectors that run along the sums (kernels/convolution/
dots.py). The image is copied for that, of which a filter so tall reads every pixel many times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from engine.compiler.kernels.convolution.dots import Dots, pays
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.fusion import absorb, alone
from engine.compiler.lowering.result import Result, as_image
from engine.compiler.lowering.rules.convolution.conv_parameters import ConvParameters, border_of, spans_of
from engine.compiler.lowering.rules.convolution.conv_steps import Filters, computed
from engine.compiler.lowering.rules.convolution.unbatched import fused
from engine.compiler.lowering.rules.elementwise.composing import derived
from engine.compiler.lowering.steps import KernelStep, Made
from engine.compiler.storage import View, channels_last, ordered
from engine.ir.strided import Strided
from engine.tensor import Array

# Taps down from which the copy this takes is little beside the products.
TALL = 8


def turns(context: Context, parameters: ConvParameters, weight: Array) -> bool:
    """Whether a convolution is better computed so; the weight is (O, I, KD, KH, KW)."""
    outputs, inputs, planes, down, across = weight.shape
    if inputs > 1 or planes > 1 or parameters.groups > 1 or parameters.depth is not None:
        return False
    is_narrow = TALL <= down > across and parameters.dilation == (1, 1)
    return is_narrow and pays(context.host, Dots(outputs, across, down, context.host.lanes))


def lower_turned(
    context: Context,
    x: View,
    before: Sequence[KernelStep],
    parameters: ConvParameters,
    sizes: Sequence[int],
    filters: Filters,
) -> Made:
    """(N, 1, H, W) -> (N, O, *sizes), or both without the batch.

    Args:
        x: the image, with a batch dimension.
        before: what computes it.
    """
    image, turned = derived(x, x.phantom.swapaxes(2, 3)), _turned(parameters)
    whole = _whole(context, image)
    rows, columns = spans_of(turned, image.shape[2:], (sizes[1], sizes[0]))
    border = border_of(rows, columns, image.shape[2:])
    copies: list[KernelStep] = []
    if image.strides[3] != 1 or any(border):
        lying = channels_last(image.shape, border, image.dtype)
        copies.append(context.copy(image, lying))
        image = lying
    weight, bias = filters
    result = whole.part(_turned_image)
    steps = computed(context, image, result, turned, [*product(rows, columns)], (weight.swapaxes(3, 4), bias))
    return whole.made(*before, *copies, *steps)


def _whole(context: Context, image: View) -> Result:
    """The result, in the order of an image that lies so as it is read here; else as others."""
    sizes = context.result_spec.sizes
    if image.strides[3] != 1 or len(sizes) < 4:
        return fused(context, 2)
    found = absorb(context.lowering, alone(context.op), as_image)
    return Result.seen(found, ordered(sizes, (0, 3, 2, 1), context.dtype), as_image, context.lowering.alarm)


def _turned(parameters: ConvParameters) -> ConvParameters:
    """Those of the convolution whose rows are the columns."""
    top, left, bottom, right = parameters.border
    return replace(
        parameters,
        kernel=parameters.kernel[::-1],
        stride=parameters.stride[::-1],
        border=(left, top, right, bottom),
    )


def _turned_image(array: Strided) -> Strided:
    """A result, with a batch dimension or without, as images whose rows are the columns."""
    return as_image(array if array.ndim > 3 else array[None]).swapaxes(2, 3)
