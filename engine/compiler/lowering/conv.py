"""Convolutions: which kernel, on which view of the operand, with which tile."""

from __future__ import annotations

from dataclasses import dataclass

from engine.compiler.kernels.conv import Conv, choose_tile
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
from engine.compiler.storage import View, constant
from engine.graph.operator import RuntimeOperator
from engine.layers import conv
from engine.tensor import Array


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


def _wanted_border(op: RuntimeOperator) -> Border | None:
    layer = op.layer.layer if op.layer is not None else None
    weight = op.attributes.get("weight")
    kernel = tuple(weight.shape[2:]) if weight is not None else ()
    if not isinstance(layer, conv.Conv) or not kernel or layer.padding_mode != "zeros" or layer.spatial_rank > 2:
        return NO_BORDER
    return _geometry(layer, kernel).border


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
    source = lowering.image(op, x, geometry.border)
    if weight.ndim == 3:
        weight = weight[:, :, None, :]
    fused = absorb(lowering, op)
    target = lowering.place(fused.operand, is_image=True)
    emit_conv(lowering, source, target, fused, geometry, weight, bias)
    lowering.define(fused.operand, target)


def emit_conv(
    lowering: Lowering,
    x: View,
    y: View,
    fused: Fused,
    geometry: Geometry,
    weight: Array,
    bias: Array | None,
) -> None:
    """The kernel that suits a convolution best, from a view that has its border to one channels-last."""
    tail, operands = epilogue(lowering, fused, as_image)
    image, result = as_image(x.phantom), as_image(y.phantom)
    source, target = _raw_strides(image), _raw_strides(result)
    top, left = geometry.border[:2]
    first = Pointer(x.storage, x.offset - 4 * (top * source.h + left * source.w))
    n, channels, rows, columns = result.shape
    kernel: Kernel = _choose(lowering, geometry, weight, source, target, tail, (n, channels, rows, columns))
    packed = constant(kernel.pack(weight, bias))  # type: ignore[attr-defined]
    pointers = [first, pointer(packed), pointer(y), *operands]
    if isinstance(kernel, Winograd):
        pointers.append(lowering.raise_alarm())
    traffic = x.phantom.nbytes + y.phantom.nbytes + packed.phantom.nbytes
    lowering.emit(kernel, pointers, fused.operators, traffic + sum(view.phantom.nbytes for view in fused.views))


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
        return Winograd(
            batch=n,
            rows=rows,
            columns=columns,
            in_channels=weight.shape[1],
            out_channels=channels,
            source=source,
            target=target,
            filtering=filtering,
            blocking=choose_blocking(lowering.host, filtering, rows, columns, weight.shape[1], channels, n),
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
    is_plain = geometry.kernel == (3, 3) and geometry.dilation == (1, 1) and geometry.groups == 1
    if not is_plain or geometry.stride not in ((1, 1), (2, 2)) or lowering.options.winograd == "off":
        return None
    n, channels, rows, columns = shape
    return choose_winograd(lowering.host, geometry.stride[0], rows, columns, weight.shape[1], channels, n)


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
) -> Conv:
    """The direct kernel for an output of n images of rows x columns."""
    out_channels = len(weight) // geometry.groups
    return Conv(
        batch=n,
        rows=rows,
        columns=columns,
        in_channels=weight.shape[1],
        out_channels=out_channels,
        groups=geometry.groups,
        kernel=geometry.kernel,
        stride=geometry.stride,
        dilation=geometry.dilation,
        source=source,
        target=target,
        tile=choose_tile(lowering.host, rows, columns, out_channels, weight[0].size),
        lanes=lowering.host.lanes,
        epilogue=epilogue,
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
