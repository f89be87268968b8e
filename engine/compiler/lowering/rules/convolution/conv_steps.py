"""The steps of a convolution of an image that has its border: one kernel, or one for every part of the output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from engine.compiler.kernels.convolution.conv import Conv
from engine.compiler.kernels.convolution.tiles import PANEL_SIZES
from engine.compiler.kernels.kernel import Convolution, Strides
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.result import Result, as_image
from engine.compiler.lowering.rules.convolution.conv_kernels import direct, flat_filters, kernels_of, raw_strides
from engine.compiler.lowering.rules.convolution.conv_parameters import ConvParameters
from engine.compiler.lowering.rules.convolution.run_time import packed_in_run
from engine.compiler.lowering.rules.convolution.taps import Span
from engine.compiler.lowering.steps import KernelStep
from engine.compiler.storage import View
from engine.ir.strided import AnyArray, Strided
from engine.tensor import Array

Parts = Sequence[tuple[Span, Span]]
"""Rows and columns of the output that are summed over the same taps."""
Filters = tuple[Array, Array | None]
"""Weight (O, I, KD, KH, KW) and bias."""


def computed(
    context: Context, x: View, result: Result, parameters: ConvParameters, parts: Parts, filters: Filters
) -> Iterator[KernelStep]:
    """The kernels of a convolution, from an image that has its border."""
    compute = _whole if len(parts) == 1 else _in_parts
    return compute(context, x, result, parameters, parts, filters)


def as_filters(weight: AnyArray) -> AnyArray:
    """(O, I, KW) and (O, I, KH, KW) as (O, I, KD, KH, KW)."""
    return weight.reshape(*weight.shape[:2], *(1,) * (5 - weight.ndim), *weight.shape[2:])


def _whole(
    context: Context, x: View, result: Result, parameters: ConvParameters, parts: Parts, filters: Filters
) -> Iterator[KernelStep]:
    """The kernel that suits a convolution best, from an image that has its border."""
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
    flat = flat_filters(filters[0])

    def step_of(kernel: Convolution) -> KernelStep:
        packed = context.lowering.packed(kernel.packing, filters, lambda: kernel.pack(flat, filters[1]))
        return result.step(kernel, [x, packed], origin=origin)

    return context.choose(kernels_of(context, result, parameters, filters[0], source), step_of)


def with_computed(
    context: Context,
    x: View,
    result: Result,
    parameters: ConvParameters,
    parts: Parts,
    filters: tuple[View, View | None],
) -> Iterator[KernelStep]:
    """The same with weights that the run computes, and packs before."""

    def pack(kernel: Conv) -> tuple[View, Sequence[KernelStep]]:
        return packed_in_run(context, kernel, *filters)

    return _in_parts_of(context, x, result, parameters, parts, filters[0].phantom, pack)


def _in_parts(
    context: Context, x: View, result: Result, parameters: ConvParameters, parts: Parts, filters: Filters
) -> Iterator[KernelStep]:
    """A direct convolution of every part of the output whose pixels meet the image with the same taps."""

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
    """Where the first pixel of a part reads first, in bytes from the first pixel of the image."""
    return x.dtype.itemsize * (row.origin * source.h + column.origin * source.w)


def _pixels(array: Strided, row: Span, column: Span) -> Strided:
    """The pixels of a part of an image or signal, as an image."""
    rows, columns = slice(row.start, row.start + row.count), slice(column.start, column.start + column.count)
    return as_image(array)[:, :, rows, columns]
