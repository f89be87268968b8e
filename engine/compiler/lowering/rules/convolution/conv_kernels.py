"""Selection of the kernel of a convolution, and of its tile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from engine.compiler.kernels.convolution.conv import Conv
from engine.compiler.kernels.convolution.depthwise import Depthwise
from engine.compiler.kernels.convolution.depthwise_tile import choose_tile as choose_depthwise_tile
from engine.compiler.kernels.convolution.dots import DotConv, choose_dot_tile
from engine.compiler.kernels.convolution.dots import is_faster as are_dots_faster
from engine.compiler.kernels.convolution.grouped import GroupedConv, PackedGroups, choose_grouped_tile, is_faster
from engine.compiler.kernels.convolution.matrix_conv import in_tiles
from engine.compiler.kernels.convolution.tiles import PANEL_SIZES, choose_tile
from engine.compiler.kernels.kernel import Convolution, Strides
from engine.compiler.kernels.products.arithmetic import ARITHMETIC
from engine.compiler.kernels.winograd.blocking import choose_blocking, choose_filtering, offered_for
from engine.compiler.kernels.winograd.transforms import Filtering
from engine.compiler.kernels.winograd.winograd import Winograd
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.fusion import Result
from engine.compiler.lowering.rules.convolution.conv_geometry import ConvParameters
from engine.compiler.storage import FLOAT32, View
from engine.ir.dims import hint, is_same
from engine.ir.strided import Strided
from engine.layers.elementwise.cast import To
from engine.tensor import Array


def kernel_of(
    context: Context, result: Result, parameters: ConvParameters, weight: Array | Strided, source: Strides
) -> Convolution:
    """Return the kernel that computes a result fastest, by the cost models.

    Args:
        weight: (O, I, KD, KH, KW), of ``parameters.kernel`` taps in a plane.
        source: strides of the image with its border.
    """
    n, channels, rows, columns = shape = result.image.shape
    target, epilogue, host = raw_strides(result.image), result.epilogue, context.host
    given = context, result, parameters, weight, source, target
    is_depthwise = len(weight) == parameters.groups and weight.shape[1] == 1 and parameters.groups > 1
    if is_depthwise and parameters.words == "float":
        geometry = parameters.kernel, parameters.stride, parameters.dilation
        tile = choose_depthwise_tile(host, rows if parameters.depth is None else 1, columns, *geometry)
        fields_in_common = _geometry(context, result, parameters, source, target)
        return Depthwise(channels=channels, tile=tile, numbers=parameters.numbers, **fields_in_common)
    size = None
    if parameters.kernel == (1, 1) and parameters.stride == (1, 1):
        size = _flattened((source, target, *epilogue.operands), n, rows, columns, parameters.depth is None)
    grouped = _grouped(*given, size or (n, rows, columns))
    if grouped is not None:
        return grouped
    if 2 * channels <= host.lanes * parameters.groups:
        dots = dots_of(context, direct(*given, size=size))
        if dots is not None:
            return dots
    filtering = winograd_filtering(context, parameters, weight, shape) if parameters.words == "float" else None
    if filtering is None:
        return in_tiles(direct(*given, size=size))
    images, down, across = hint(_of_one_phase(shape, parameters))
    sizes = down, across, weight.shape[1], channels, images
    kernel = Winograd(
        batch=n,
        rows=rows,
        columns=columns,
        in_channels=weight.shape[1],
        out_channels=channels,
        source=source,
        target=target,
        filtering=filtering,
        blocking=choose_blocking(host, filtering, *sizes, planes=parameters.planes),
        dilation=parameters.dilation[1],
        depth=parameters.depth,
        host=host,
        epilogue=epilogue,
    )
    if filtering.stride == 1:  # otherwise a filter value meets several adjacent tiles
        kernel = replace(kernel, blocking=kernel.blocking.within(kernel.tiles))
    return kernel


def _geometry(
    context: Context,
    result: Result,
    parameters: ConvParameters,
    source: Strides,
    target: Strides,
    size: tuple[int, int, int] | None = None,
) -> dict[str, Any]:
    """Return the fields that kernels have in common; see ``direct``."""
    batch, _, height, width = result.image.shape
    n, rows, columns = size or (batch, height, width)
    return {
        "batch": n,
        "rows": rows,
        "columns": columns,
        "kernel": parameters.kernel,
        "stride": parameters.stride,
        "dilation": parameters.dilation,
        "source": source,
        "target": target,
        "depth": parameters.depth,
        "host": context.host,
        "epilogue": result.epilogue,
    }


def _grouped(
    context: Context,
    result: Result,
    parameters: ConvParameters,
    weight: Array | Strided,
    source: Strides,
    target: Strides,
    size: tuple[int, int, int],
) -> GroupedConv | None:
    """Return the kernel of a convolution whose groups are narrow, so that several share a vector; None for others."""
    inputs, outputs = _words(parameters, weight), len(weight) // parameters.groups
    packed = PackedGroups(inputs, outputs, parameters.groups, context.host.lanes)
    if not is_faster(context.host, packed, parameters.kernel[1]):
        return None
    (_, rows, columns), (down, across) = size, parameters.kernel
    taps = parameters.planes * down, across
    spacing = parameters.stride[1], parameters.dilation[1]
    return GroupedConv(
        in_channels=packed.inputs,
        out_channels=len(weight),
        outputs=packed.outputs,
        groups=1,
        tile=choose_grouped_tile(context.host, rows, columns, taps, *spacing, packed.inputs),
        words=parameters.words,
        **_geometry(context, result, parameters, source, target, size),
    )


def dots_of(context: Context, plain: Conv) -> DotConv | None:
    """Return the variant of a direct kernel whose vectors run along the sums; None where it is not faster."""
    if plain.words != "float":
        return None
    kernel = DotConv(**{each.name: getattr(plain, each.name) for each in fields(plain) if each.init})
    if not are_dots_faster(context.host, kernel.dots):
        return None
    return replace(kernel, tile=choose_dot_tile(context.host, plain.rows, plain.columns, kernel.dots))


def winograd_filtering(
    context: Context, parameters: ConvParameters, weight: Array | Strided, shape: tuple[int, ...]
) -> Filtering | None:
    """Return the fastest variant of Winograd's algorithm; None where direct sums are faster or it does not apply."""
    depth = parameters.depth
    is_added_up = depth is None or depth.kernel > 1 or depth.is_inside
    is_plain = parameters.groups == 1 and is_added_up
    if not is_plain or context.lowering.options.winograd == "off" or _is_counted(context):
        return None
    if context.dtype != FLOAT32:  # float64 is used for its precision
        return None
    (stride, across), (down, dilation), channels = parameters.stride, parameters.dilation, shape[1]
    if stride != across or (stride > 1 and dilation > 1) or (parameters.kernel[0] > 1 and down != dilation):
        return None
    n, rows, columns = hint(_of_one_phase(shape, parameters))
    is_even = _is_even(shape, parameters)
    offered = offered_for(parameters.kernel, stride, hint(shape[3] // dilation), is_even=is_even)
    if not offered:
        return None
    speed = ARITHMETIC[parameters.words].speed_on(context.host)
    sizes = rows, columns, weight.shape[1], channels, n
    return choose_filtering(context.host, offered, *sizes, planes=parameters.planes, speed=speed)


def _is_counted(context: Context) -> bool:
    """Return whether the result is cast to integers, so that rounding errors could change a whole number."""
    users = [each.definition for each in context.op.outputs[0].consumers]
    return any(isinstance(each, To) and each.dtype is not None and each.dtype.kind in "iu" for each in users)


def _of_one_phase(shape: tuple[int, ...], parameters: ConvParameters) -> tuple[int, int, int]:
    """Return number, rows and columns of the images of every d-th pixel, or of every d-th column."""
    n, _, rows, columns = shape
    dilation = parameters.dilation[1]
    if parameters.kernel != (3, 3) or not _is_even(shape, parameters):
        return n * dilation, rows, -(-columns // dilation)
    return n * dilation**2, rows // dilation, columns // dilation


def _is_even(shape: tuple[int, ...], parameters: ConvParameters) -> bool:
    """Return whether the images of every d-th pixel have one size."""
    return all(is_same(size % parameters.dilation[1], 0) for size in shape[2:])


def direct(
    context: Context,
    result: Result,
    parameters: ConvParameters,
    weight: Array | Strided,
    source: Strides,
    target: Strides,
    *,
    size: tuple[int, int, int] | None = None,
    first_tap: tuple[int, int] = (0, 0),
    panel_sizes: Sequence[int] = PANEL_SIZES,
) -> Conv:
    """Return the direct kernel for a result.

    Args:
        weight: (O, I, KD, KH, KW), of numbers, of which ``parameters.kernel`` taps of every plane are multiplied, from
            ``first_tap`` on.
        source, target: strides of the image with its border, and of the result.
        size: images, rows and columns, where they are not the result's own.
        panel_sizes: vectors that a panel may have.
    """
    geometry = _geometry(context, result, parameters, source, target, size)
    out_channels, arithmetic = len(weight) // parameters.groups, ARITHMETIC[parameters.words]
    in_channels = _words(parameters, weight)
    taps = parameters.planes * in_channels * parameters.kernel[0] * parameters.kernel[1]
    sizes = geometry["rows"], geometry["columns"], out_channels, taps
    return Conv(
        in_channels=in_channels,
        out_channels=out_channels,
        groups=parameters.groups,
        tile=choose_tile(arithmetic.tiling_host(context.host), *sizes, panel_sizes),
        packed_kernel=(weight.shape[3], weight.shape[4]),
        first_tap=first_tap,
        words=parameters.words,
        **geometry,
    )


def _words(parameters: ConvParameters, weight: Array | Strided) -> int:
    """Return the words of a pixel that a group reads."""
    return -(-weight.shape[1] // ARITHMETIC[parameters.words].numbers)


def flat_filters(weight: Array) -> Array:
    """Return (O, I, KD, KH, KW) as kernels pack it, with the rows of all planes one after the other."""
    return weight.reshape(*weight.shape[:2], -1, weight.shape[4])


def _flattened(
    strides: tuple[Strides, ...], n: int, rows: int, columns: int, is_all: bool
) -> tuple[int, int, int] | None:
    """Return images, rows and columns as one row, if its pixels are equally spaced in every tensor, else None.

    Args:
        is_all: whether the pixels of all images are one row; else those of each are.
    """
    if not (is_same(rows, 1) or all(is_same(each.h, columns * each.w) for each in strides)):
        return None
    if is_all:
        is_dense = is_same(n, 1) or all(is_same(each.n, rows * columns * each.w) for each in strides)
        return (1, 1, n * rows * columns) if is_dense else None
    return n, 1, rows * columns


def raw_strides(image: View) -> Strides:
    """Return the strides of (n, c, h, w), also along a dimension of size 1, where a border lies."""
    n, _, h, w = (stride // image.meta.itemsize for stride in image.meta.strides)
    return Strides(n if image.shape[0] > 1 else 0, h, w)
