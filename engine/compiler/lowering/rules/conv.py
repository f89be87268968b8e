"""Convolutions with the element-wise operators after them, whole or in parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product

from engine.compiler.kernels.convolution.conv import PANEL_SIZES
from engine.compiler.kernels.kernel import Strides
from engine.compiler.lowering.fusion import Fused, absorb, epilogue
from engine.compiler.lowering.lowering import Lowering
from engine.compiler.lowering.rules.conv_kernels import choose_kernel, direct, raw_strides
from engine.compiler.lowering.rules.geometry import Geometry, as_image, border_of, geometry_of, spans_of
from engine.compiler.lowering.rules.registry import BORDERS, NO_BORDER, Border, NotLoweredError, lowers
from engine.compiler.lowering.rules.taps import Span
from engine.compiler.lowering.steps import Pointer, pointer
from engine.compiler.storage import View, constant
from engine.graph.operator import RuntimeOperator
from engine.layers.convolution import conv
from engine.tensor import Array, TensorSpec


def _wanted_border(op: RuntimeOperator, x: TensorSpec, y: TensorSpec) -> Border:
    layer, weight = op.definition, op.attributes.get("weight")
    kernel = tuple(weight.shape[2:]) if weight is not None else ()
    if not isinstance(layer, conv.Conv) or not kernel or layer.padding_mode != "zeros" or layer.spatial_rank > 2:
        return NO_BORDER
    if not x.rank == y.rank == len(kernel) + 2:
        return NO_BORDER
    try:
        return border_of(*spans_of(geometry_of(layer, kernel), x.sizes[2:], y.sizes[2:]), x.sizes[2:])
    except NotLoweredError:
        return NO_BORDER


BORDERS[conv.Conv] = _wanted_border


@lowers(conv.Conv, image=True, spatial_ranks=(1, 2))
def lower_conv(lowering: Lowering, op: RuntimeOperator) -> None:
    """A convolution of signals or images with the element-wise operators after it."""
    layer = lowering.layer(op, conv.Conv)
    weight, bias = lowering.weight(op, 1), lowering.weight(op, 2, optional=True)
    if weight is None:
        raise NotLoweredError("its weights are computed")
    x = lowering.tensor(op, 0)
    if len(x.shape) != layer.spatial_rank + 2:
        raise NotLoweredError("there is no kernel without a batch dimension")
    geometry = geometry_of(layer, weight.shape[2:])
    rows, columns = spans_of(geometry, x.shape[2:], lowering.float_spec(op.outputs[0]).sizes[2:])
    source = lowering.image(op, x, border_of(rows, columns, x.shape[2:]))
    if weight.ndim == 3:
        weight = weight[:, :, None, :]
    fused = absorb(lowering, op)
    target = lowering.place(fused.operand, is_image=True)
    if len(rows) == len(columns) == 1:
        _emit_whole(lowering, source, target, fused, geometry, (rows[0], columns[0]), weight, bias)
    else:
        _emit_parts(lowering, source, target, fused, geometry, (rows, columns), weight, bias)
    lowering.define(fused.operand, target)


def _emit_whole(
    lowering: Lowering,
    x: View,
    y: View,
    fused: Fused,
    geometry: Geometry,
    span: tuple[Span, Span],
    weight: Array,
    bias: Array | None,
) -> None:
    """The kernel that suits a convolution best, from a view that has its border to one channels-last."""
    tail, operands = epilogue(lowering, fused, as_image)
    result, source = as_image(y.phantom), raw_strides(as_image(x.phantom))
    row, column = span
    weight = weight[:, :, row.first : row.first + row.taps, column.first : column.first + column.taps]
    geometry = replace(geometry, kernel=(row.taps, column.taps))
    kernel = choose_kernel(lowering, geometry, weight, source, raw_strides(result), tail, result.shape)
    packed = constant(kernel.pack(weight, bias))
    pointers = [_first_tap(x, source, row, column), pointer(packed), pointer(y), *operands]
    traffic = x.phantom.nbytes + y.phantom.nbytes + packed.phantom.nbytes
    lowering.emit(kernel, pointers, fused.operators, traffic + sum(view.phantom.nbytes for view in fused.views))


def _emit_parts(
    lowering: Lowering,
    x: View,
    y: View,
    fused: Fused,
    geometry: Geometry,
    axes: tuple[list[Span], list[Span]],
    weight: Array,
    bias: Array | None,
) -> None:
    """A direct convolution of every part of the output whose pixels meet the image with the same taps."""
    source = raw_strides(as_image(x.phantom))
    packed: View | None = None
    sizes: Sequence[int] = PANEL_SIZES
    for row, column in sorted(product(*axes), key=lambda part: -part[0].count * part[1].count):
        pixels = partial(_pixels, row=row, column=column)
        view = y.derive(pixels(y.phantom))
        if view is None:
            raise NotLoweredError("its parts do not lie in place")
        tail, operands = epilogue(lowering, fused, pixels)
        image = as_image(view.phantom)
        kernel = direct(
            lowering,
            n=image.shape[0],
            rows=row.count,
            columns=column.count,
            weight=weight,
            geometry=replace(geometry, kernel=(row.taps, column.taps)),
            source=source,
            target=raw_strides(image),
            epilogue=tail,
            first_tap=(row.first, column.first),
            sizes=sizes,
        )
        if packed is None:  # all parts read the same weights
            packed, sizes = constant(kernel.pack(weight, bias)), (kernel.tile.vectors,)
        pointers = [_first_tap(x, source, row, column), pointer(packed), pointer(view), *operands]
        lowering.emit(kernel, pointers, fused.operators, x.phantom.nbytes + 4 * view.phantom.size)


def _first_tap(x: View, source: Strides, row: Span, column: Span) -> Pointer:
    """Where the first pixel of a part reads first."""
    return Pointer(x.storage, x.offset + 4 * (row.origin * source.h + column.origin * source.w))


def _pixels(array: Array, row: Span, column: Span) -> Array:
    """The pixels of a part of an image or signal, as an image."""
    rows, columns = slice(row.start, row.start + row.count), slice(column.start, column.start + column.count)
    return as_image(array)[:, :, rows, columns]
