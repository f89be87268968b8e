"""Convolutions: which kernel, on which view of the operand, with which tile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

from engine.compiler.kernels.conv import PANEL_SIZES, Conv, choose_tile
from engine.compiler.kernels.depthwise import Depthwise
from engine.compiler.kernels.depthwise_tile import choose_tile as choose_depthwise_tile
from engine.compiler.kernels.kernel import Epilogue, Kernel, Strides
from engine.compiler.kernels.winograd import Winograd
from engine.compiler.kernels.winograd_blocking import choose as choose_winograd
from engine.compiler.kernels.winograd_blocking import choose_blocking
from engine.compiler.kernels.winograd_transforms import Filtering
from engine.compiler.lowering.builder import Lowering
from engine.compiler.lowering.fusion import Fused, absorb, epilogue
from engine.compiler.lowering.rules import BORDERS, NO_BORDER, Border, NotLoweredError, lowers
from engine.compiler.lowering.steps import Pointer, pointer
from engine.compiler.lowering.taps import Axis, Span, spans
from engine.compiler.storage import View, constant
from engine.graph.operator import RuntimeOperator
from engine.layers import conv
from engine.tensor import Array, TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """A convolution as its parameters give it, with a height of one where there is none."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    border: Border
    groups: int


def _geometry(layer: conv.Conv, kernel: tuple[int, ...]) -> Geometry:
    if layer.padding_mode != "zeros" and any(map(any, layer.padding_of(kernel))):
        raise NotLoweredError(f"there is no kernel for padding_mode {layer.padding_mode}")
    windows = layer.windows_of(kernel)
    (top, bottom), (left, right) = [(0, 0), *layer.padding_of(kernel)][-2:]
    return Geometry(
        kernel=_pair([window.kernel for window in windows]),
        stride=_pair([window.stride for window in windows]),
        dilation=_pair([window.dilation for window in windows]),
        border=(top, left, bottom, right),
        groups=layer.groups,
    )


def _pair(numbers: list[int]) -> tuple[int, int]:
    first, second = [1, *numbers][-2:]
    return first, second


def _wanted_border(op: RuntimeOperator, x: TensorSpec, y: TensorSpec) -> Border:
    layer, weight = op.layer.layer if op.layer is not None else None, op.attributes.get("weight")
    kernel = tuple(weight.shape[2:]) if weight is not None else ()
    if not isinstance(layer, conv.Conv) or not kernel or layer.padding_mode != "zeros" or layer.spatial_rank > 2:
        return NO_BORDER
    if not x.rank == y.rank == len(kernel) + 2:
        return NO_BORDER
    return _border(*_spans(_geometry(layer, kernel), x.sizes[2:], y.sizes[2:]))


def _spans(geometry: Geometry, sizes: tuple[int, ...], counts: tuple[int, ...]) -> tuple[list[Span], list[Span]]:
    """The spans that the rows and columns of the output fall into.

    Args:
        sizes, counts: pixels of the input and of the output.
    """
    rows, columns = (
        spans(
            Axis(
                size=_pair(list(sizes))[k],
                count=_pair(list(counts))[k],
                kernel=geometry.kernel[k],
                stride=geometry.stride[k],
                dilation=geometry.dilation[k],
                before=geometry.border[k],
            ),
            can_split=geometry.groups == 1,
        )
        for k in (0, 1)
    )
    return rows, columns


def _border(rows: list[Span], columns: list[Span]) -> Border:
    """The zeros around the image that are read."""
    top, left = (max(span.before for span in each) for each in (rows, columns))
    bottom, right = (max(span.after for span in each) for each in (rows, columns))
    return top, left, bottom, right


BORDERS[conv.Conv] = _wanted_border


def as_image(array: Array) -> Array:
    """(C, W), (C, H, W), (N, C, W) seen as (N, C, H, W); which of the two of rank 3 is for the caller to know."""
    return array[:, :, None, :] if array.ndim == 3 else array


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
    lowering.float_spec(op.outputs[0])
    geometry = _geometry(layer, weight.shape[2:])
    rows, columns = _spans(geometry, x.shape[2:], lowering.float_spec(op.outputs[0]).sizes[2:])
    source = lowering.image(op, x, _border(rows, columns))
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
    result, source = as_image(y.phantom), _raw_strides(as_image(x.phantom))
    row, column = span
    weight = weight[:, :, row.first : row.first + row.taps, column.first : column.first + column.taps]
    geometry = replace(geometry, kernel=(row.taps, column.taps))
    kernel: Kernel = _choose(lowering, geometry, weight, source, _raw_strides(result), tail, result.shape)
    packed = constant(kernel.pack(weight, bias))  # type: ignore[attr-defined]
    pointers = [_first_tap(x, source, row, column), pointer(packed), pointer(y), *operands]
    if isinstance(kernel, Winograd):
        pointers.append(lowering.raise_alarm())
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
    source = _raw_strides(as_image(x.phantom))
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
            target=_raw_strides(image),
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


def _choose(
    lowering: Lowering,
    geometry: Geometry,
    weight: Array,
    source: Strides,
    target: Strides,
    epilogue: Epilogue,
    shape: tuple[int, int, int, int],
) -> Kernel:
    n, channels, rows, columns = shape
    if len(weight) == geometry.groups and weight.shape[1] == 1 and geometry.groups > 1:
        return Depthwise(
            batch=n,
            rows=rows,
            columns=columns,
            channels=channels,
            kernel=geometry.kernel,
            stride=geometry.stride,
            dilation=geometry.dilation,
            source=source,
            target=target,
            tile=choose_depthwise_tile(
                lowering.host, rows, columns, geometry.kernel, geometry.stride, geometry.dilation
            ),
            lanes=lowering.host.lanes,
            epilogue=epilogue,
        )
    filtering = _filtering(lowering, geometry, weight, shape)
    if filtering is not None:
        size = _of_one_phase(shape, geometry.dilation[0])
        return Winograd(
            batch=n,
            rows=rows,
            columns=columns,
            in_channels=weight.shape[1],
            out_channels=channels,
            source=source,
            target=target,
            filtering=filtering,
            blocking=choose_blocking(lowering.host, filtering, *size[1:], weight.shape[1], channels, size[0]),
            dilation=geometry.dilation[0],
            lanes=lowering.host.lanes,
            epilogue=epilogue,
        )
    is_pointwise = geometry.kernel == (1, 1) and geometry.stride == (1, 1)
    if is_pointwise and _is_flat((source, target, *epilogue.operands), n, rows, columns):
        n, rows, columns = 1, 1, n * rows * columns
    return direct(
        lowering,
        n=n,
        rows=rows,
        columns=columns,
        weight=weight,
        geometry=geometry,
        source=source,
        target=target,
        epilogue=epilogue,
    )


def _filtering(
    lowering: Lowering, geometry: Geometry, weight: Array, shape: tuple[int, int, int, int]
) -> Filtering | None:
    """The form of Winograd's algorithm that is fastest, where one applies and is faster than direct sums."""
    is_plain = geometry.kernel == (3, 3) and geometry.groups == 1
    if not is_plain or lowering.options.winograd == "off":
        return None
    (stride, dilation), channels = (geometry.stride[0], geometry.dilation[0]), shape[1]
    if geometry.stride != (stride, stride) or geometry.dilation != (dilation, dilation):
        return None
    # Dilated, it is one of all images of every d-th pixel, which must be of one size.
    if stride > 2 or (dilation > 1 and (stride > 1 or any(size % dilation for size in shape[2:]))):
        return None
    n, rows, columns = _of_one_phase(shape, dilation)
    return choose_winograd(lowering.host, stride, rows, columns, weight.shape[1], channels, n)


def _of_one_phase(shape: tuple[int, int, int, int], dilation: int) -> tuple[int, int, int]:
    """Number, rows and columns of the images of every d-th pixel of some images."""
    n, _, rows, columns = shape
    return n * dilation**2, rows // dilation, columns // dilation


def direct(
    lowering: Lowering,
    *,
    n: int,
    rows: int,
    columns: int,
    weight: Array,
    geometry: Geometry,
    source: Strides,
    target: Strides,
    epilogue: Epilogue,
    first_tap: tuple[int, int] = (0, 0),
    sizes: Sequence[int] = PANEL_SIZES,
) -> Conv:
    """The direct kernel for an output of n images of rows x columns.

    Args:
        weight: of which ``geometry.kernel`` taps are multiplied, from ``first_tap`` on.
        sizes: vectors that a panel may have.
    """
    out_channels, in_channels = len(weight) // geometry.groups, weight.shape[1]
    taps = in_channels * geometry.kernel[0] * geometry.kernel[1]
    return Conv(
        batch=n,
        rows=rows,
        columns=columns,
        in_channels=in_channels,
        out_channels=out_channels,
        groups=geometry.groups,
        kernel=geometry.kernel,
        stride=geometry.stride,
        dilation=geometry.dilation,
        source=source,
        target=target,
        tile=choose_tile(lowering.host, rows, columns, out_channels, taps, sizes),
        lanes=lowering.host.lanes,
        epilogue=epilogue,
        packed_kernel=(weight.shape[2], weight.shape[3]),
        first_tap=first_tap,
    )


def _is_flat(strides: tuple[Strides, ...], n: int, rows: int, columns: int) -> bool:
    """Whether all pixels of all images lie at one distance from each other, in every tensor."""
    return all(
        (rows == 1 or each.h == columns * each.w) and (n == 1 or each.n == rows * columns * each.w) for each in strides
    )


def _raw_strides(image: Array) -> Strides:
    """Strides of (n, c, h, w) as they are, even along a dimension of one element: its border lies there."""
    n, _, h, w = (stride // image.itemsize for stride in image.strides)
    return Strides(n if image.shape[0] > 1 else 0, h, w)
