"""Convolutions with the element-wise operators after them, whole or in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np

from engine.compiler.kernels.convolution.conv import Conv
from engine.compiler.kernels.convolution.tiles import PANEL_SIZES
from engine.compiler.kernels.kernel import Convolution, Strides
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.declining import NotLoweredError
from engine.compiler.lowering.layout.wishes import BORDERS, NO_BORDER, Border
from engine.compiler.lowering.result import Result, as_image
from engine.compiler.lowering.rules.convolution.conv_kernels import direct, flat_filters, kernels_of, raw_strides
from engine.compiler.lowering.rules.convolution.conv_parameters import (
    ConvParameters,
    bearable,
    border_of,
    depth_of,
    parameters_of,
    settled_conv,
    spans_of,
)
from engine.compiler.lowering.rules.convolution.gathered import gathers, lower_gathered
from engine.compiler.lowering.rules.convolution.run_time import packed_in_run, weights_of
from engine.compiler.lowering.rules.convolution.taps import Span
from engine.compiler.lowering.rules.convolution.unbatched import batched, fused
from engine.compiler.lowering.rules.elementwise.composing import derived
from engine.compiler.lowering.rules.movement.padding import surrounded
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import KernelStep, Made
from engine.compiler.storage import View
from engine.graph.operator import RuntimeOperator
from engine.layers.convolution import conv
from engine.layers.definition.layer import Layer
from engine.tensor import Array, TensorSpec

Parts = Sequence[tuple[Span, Span]]
"""Rows and columns of the output that are summed over the same taps."""
Filters = tuple[Array, Array | None]
"""Weight (O, I, KD, KH, KW) and bias."""


def _wanted_border(op: RuntimeOperator, x: TensorSpec, y: TensorSpec, is_open: bool) -> Border:
    layer, weight = op.definition, op.attributes.get("weight")
    kernel = tuple(weight.shape[2:]) if weight is not None else ()
    if not isinstance(layer, conv.Conv | conv.StridedSameConv) or not 1 <= len(kernel) <= 3:
        return NO_BORDER
    if not x.rank == y.rank == len(kernel) + 2:
        return NO_BORDER
    conv_, pairs = settled_conv(layer, x.sizes[2:], kernel)
    if conv_.padding_mode != "zeros":
        return NO_BORDER
    try:
        parameters = parameters_of(conv_, kernel, pairs)
        if is_open and max(parameters.dilation) == 1:  # what a stride leaves over at the end of one size, another reads
            return bearable(parameters.border, x.sizes[2:])
        return border_of(*spans_of(parameters, x.sizes[2:], y.sizes[2:]), x.sizes[2:])
    except NotLoweredError:
        return NO_BORDER


BORDERS[conv.Conv] = BORDERS[conv.StridedSameConv] = _wanted_border


@kernels_for(conv.Conv, conv.StridedSameConv, image=True, doubles=True)
def lower_conv(context: Context) -> Made:
    """A convolution of signals, images or volumes with the element-wise operators after it."""
    given, (weight, bias) = context.layer(Layer), weights_of(context)
    assert isinstance(given, conv.Conv | conv.StridedSameConv)
    kernel = weight.shape[2:]
    x, sizes = batched(context, len(kernel))
    layer, pairs = settled_conv(given, x.shape[2:], kernel)
    if type(layer) is not conv.Conv:
        raise NotLoweredError("there is no kernel for it")
    if not isinstance(weight, View) and not isinstance(bias, View) and gathers(context, layer, weight):
        return lower_gathered(context, layer, weight, bias, pairs)
    edges: Sequence[KernelStep] = ()
    if layer.padding_mode != "zeros" and any(map(any, pairs)):
        x, edges = surrounded(context, x, pairs, conv.PADDING_MODES[layer.padding_mode])
        pairs = ((0, 0),) * len(pairs)
    parameters = parameters_of(layer, kernel, pairs)
    if (depth := depth_of(layer, kernel, pairs, x.shape[2:], sizes)) is not None:
        parameters = replace(parameters, depth=depth)
    rows, columns = spans_of(parameters, x.shape[2:], sizes)
    image, copies = context.image(x, border_of(rows, columns, x.shape[2:]))
    result = fused(context, len(kernel))
    parts = [*product(rows, columns)]
    if len(parts) > 1 and len(context.result_spec.sizes) == len(kernel) + 1:
        raise NotLoweredError("there is no kernel in parts without a batch dimension")
    if isinstance(weight, View):
        filters = derived(weight, as_filters(weight.phantom)), bias if isinstance(bias, View) else None
        return result.made(*edges, *copies, *_with_computed(context, image, result, parameters, parts, filters))
    known = bias if isinstance(bias, np.ndarray) else None
    steps = computed(context, image, result, parameters, parts, (as_filters(weight), known))
    return result.made(*edges, *copies, *steps)


def computed(
    context: Context, x: View, result: Result, parameters: ConvParameters, parts: Parts, filters: Filters
) -> Iterator[KernelStep]:
    """The kernels of a convolution, from an image that has its border."""
    compute = _whole if len(parts) == 1 else _in_parts
    return compute(context, x, result, parameters, parts, filters)


def convolved(context: Context, image: View, weight: Array, bias: Array | None, groups: int) -> Made:
    """The result as a convolution of single pixels of an image that other kernels make; weight is (O, I, 1, 1)."""
    result = context.fuse(as_image, is_image=True)
    parameters = ConvParameters(kernel=(1, 1), groups=groups)
    sizes = image.shape[2:]
    rows, columns = spans_of(parameters, sizes, sizes)
    parts = [*product(rows, columns)]
    return result.made(*_whole(context, image, result, parameters, parts, (as_filters(weight), bias)))


def as_filters(weight: Array) -> Array:
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
    flat = flat_filters(weight)

    def step_of(kernel: Convolution) -> KernelStep:
        packed = context.lowering.packed(kernel.packing, (weight, bias), lambda: kernel.pack(flat, bias))
        return result.step(kernel, [x, packed], origin=_origin(x, source, row, column))

    yield context.choose(kernels_of(context, result, parameters, weight, source), step_of)


def _with_computed(
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
    weight: Array,
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


def _pixels(array: Array, row: Span, column: Span) -> Array:
    """The pixels of a part of an image or signal, as an image."""
    rows, columns = slice(row.start, row.start + row.count), slice(column.start, column.start + column.count)
    return as_image(array)[:, :, rows, columns]
