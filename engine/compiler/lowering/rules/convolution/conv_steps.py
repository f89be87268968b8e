"""Kernel steps of a convolution whose image has its border: one kernel, or one for every part of the output."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from engine.compiler.kernels.channels import width_of
from engine.compiler.kernels.convolution.conv import Conv
from engine.compiler.kernels.convolution.tiles import PANEL_SIZES
from engine.compiler.kernels.kernel import Strides
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.fusion import Result, as_image
from engine.compiler.lowering.rules.convolution.conv_geometry import ConvParameters, Span
from engine.compiler.lowering.rules.convolution.conv_kernels import direct, flat_filters, kernel_of, raw_strides
from engine.compiler.lowering.steps import KernelStep, derived
from engine.compiler.storage import View, constant, row_major
from engine.ir.strided import AnyArray, Strided
from engine.tensor import Array

Parts = Sequence[tuple[Span, Span]]
"""Rows and columns of the output that are summed over the same taps."""
Filters = tuple[Array, Array | None]
"""Weight (O, I, KD, KH, KW) and bias."""


def computed(
    context: Context, x: View, result: Result, parameters: ConvParameters, parts: Parts, filters: Filters
) -> Iterator[KernelStep]:
    """Yield the steps of a convolution, from an image that has its border."""
    compute = _single_step if len(parts) == 1 else _in_parts
    return compute(context, x, result, parameters, parts, filters)


def as_filters(weight: AnyArray) -> AnyArray:
    """Return (O, I, KW) or (O, I, KH, KW) as (O, I, KD, KH, KW)."""
    return weight.reshape(*weight.shape[:2], *(1,) * (5 - weight.ndim), *weight.shape[2:])


def _single_step(
    context: Context, x: View, result: Result, parameters: ConvParameters, parts: Parts, filters: Filters
) -> Iterator[KernelStep]:
    """Yield the step of the best kernel for a convolution, from an image that has its border."""
    ((row, column),), (weight, bias) = parts, filters
    source = raw_strides(x)
    weight = weight[..., row.first : row.first + row.taps, column.first : column.first + column.taps]
    parameters = replace(parameters, kernel=(row.taps, column.taps))
    origin = _origin(x, source, row, column)
    yield chosen_step(context, result, parameters, x, (weight, bias), source, origin)


def chosen_step(
    context: Context,
    result: Result,
    parameters: ConvParameters,
    x: View,
    filters: Filters,
    source: Strides,
    origin: int,
) -> KernelStep:
    """Return the step of the kernel that suits a convolution best.

    Args:
        source: strides of ``x``, an image with its border.
        origin: bytes from the first pixel of ``x`` to the one that is read first.
    """
    kernel = kernel_of(context, result, parameters, filters[0], source)
    packed = context.lowering.packed(kernel.packing, filters, lambda: kernel.pack(flat_filters(filters[0]), filters[1]))
    return result.step(kernel, [x, packed], origin=origin)


def with_computed(
    context: Context,
    x: View,
    result: Result,
    parameters: ConvParameters,
    parts: Parts,
    filters: tuple[View, View | None],
) -> Iterator[KernelStep]:
    """Yield the steps of a convolution whose weights are computed and packed at run time."""

    def pack(kernel: Conv) -> tuple[View, Sequence[KernelStep]]:
        return packed_in_run(context, kernel, *filters)

    return _in_parts_of(context, x, result, parameters, parts, filters[0].meta, pack)


def _in_parts(
    context: Context, x: View, result: Result, parameters: ConvParameters, parts: Parts, filters: Filters
) -> Iterator[KernelStep]:
    """Yield a direct convolution for every part of the output whose pixels meet the image with the same taps."""

    def pack(kernel: Conv) -> tuple[View, Sequence[KernelStep]]:
        flat = partial(kernel.pack, flat_filters(filters[0]), filters[1])
        return context.lowering.packed(kernel.packing, filters, flat), ()

    return _in_parts_of(context, x, result, parameters, parts, filters[0], pack)


def _in_parts_of(
    context: Context,
    x: View,
    result: Result,
    parameters: ConvParameters,
    parts: Parts,
    weight: Array | Strided,
    pack: Callable[[Conv], tuple[View, Sequence[KernelStep]]],
) -> Iterator[KernelStep]:
    source = raw_strides(x)
    packed: View | None = None
    sizes: Sequence[int] = PANEL_SIZES
    for row, column in sorted(parts, key=lambda part: -part[0].count * part[1].count):
        part = result.part(partial(_pixels, row=row, column=column))
        kernel = direct(
            context,
            part,
            replace(parameters, kernel=(row.taps, column.taps)),
            weight,
            source,
            raw_strides(part.image),
            first_tap=(row.first, column.first),
            panel_sizes=sizes,
        )
        if packed is None:  # all parts read the same weights
            packed, steps = pack(kernel)
            yield from steps
            sizes = (kernel.tile.vectors,)
        yield part.step(kernel, [x, packed], origin=_origin(x, source, row, column))


def _origin(x: View, source: Strides, row: Span, column: Span) -> int:
    """Return the bytes from the first pixel of the image to the one that a part reads first."""
    return x.dtype.itemsize * (row.origin * source.h + column.origin * source.w)


def _pixels(array: Strided, row: Span, column: Span) -> Strided:
    """Return the pixels of a part of an image or signal, as an image."""
    rows, columns = slice(row.start, row.start + row.count), slice(column.start, column.start + column.count)
    return as_image(array)[:, :, rows, columns]


def weights_of(context: Context) -> tuple[Array, Array | None] | tuple[View, View | None]:
    """Return weight and bias: both known, or both in memory where one is computed."""
    if not any(isinstance(context.argument(index), View) for index in (1, 2)):
        return context.weight(1), context.optional_weight(2)
    return context.tensor(1), None if context.argument(2) is None else context.tensor(2)


def packed_in_run(
    context: Context, kernel: Conv, weight: View, bias: View | None, taps: Strided | None = None
) -> tuple[View, list[KernelStep]]:
    """Return run-time weights (O, I, KD, KH, KW) and bias (O,) as ``kernel.pack`` packs them, and the steps.

    Args:
        taps: the weights to pack, as (groups, O, I, KD, KH, KW).
    """
    groups, channels = kernel.groups, kernel.out_channels
    found = weight.meta if taps is None else taps
    shape = (groups, channels, *found.shape[-4:])
    given = found.reshape(shape)
    biases = None if bias is None else derived(bias, bias.meta.reshape(groups, channels))
    target = row_major((groups, len(kernel.panels), kernel.panel_floats), weight.dtype)
    equal = sum(panel == kernel.panels[0] for panel in kernel.panels)
    steps, first = [], 0
    for begin, end in ((0, equal), (equal, len(kernel.panels))):
        if begin == end:
            continue
        panel, count = kernel.panels[begin], end - begin
        real, width = sum(real for _, real in panel), width_of(panel)
        lines = target.meta[:, begin:end, : (1 + kernel.packed_taps) * width]
        lines = lines.reshape(groups, count, 1 + kernel.packed_taps, width)[..., :real]
        last = first + count * real
        inputs, *sizes = shape[2:]
        reordered = given[:, first:last].reshape(groups, count, real, inputs, *sizes).transpose(0, 1, 4, 5, 6, 3, 2)
        places = lines[:, :, 1:].reshape(reordered.shape)
        steps.append(context.copy(derived(weight, reordered), derived(target, places)))
        steps.append(context.copy(_line(biases, first, (groups, count, real), target), derived(target, lines[:, :, 0])))
        first = last
    return target, steps


def _line(bias: View | None, first: int, shape: tuple[int, int, int], target: View) -> View:
    """Return the initial value of sums: the bias of some channels, or zeros."""
    if bias is None:
        zero = constant(np.zeros(1, target.dtype))
        return derived(zero, zero.meta.broadcast_to(shape))
    return derived(bias, bias.meta[:, first : first + math.prod(shape[1:])].reshape(shape))
