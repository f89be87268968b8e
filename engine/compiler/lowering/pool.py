"""Pooling with windows, adaptive pooling, and means over whole images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from engine.compiler.kernels.kernel import Strides
from engine.compiler.kernels.pool import Pool
from engine.compiler.kernels.pool_axis import Axis
from engine.compiler.lowering.builder import (
    Fused,
    Lowering,
    NotLoweredError,
    image_strides,
    lowers,
    pointer,
)
from engine.compiler.lowering.conv import as_image
from engine.compiler.lowering.rows import emit_global_average
from engine.compiler.storage import View, channels_last
from engine.graph.operator import RuntimeOperator
from engine.layers.adaptive_pool import AdaptiveAvgPool
from engine.layers.max_pool import MaxPool
from engine.layers.pool import AvgPool

Mode = Literal["max", "average"]


@lowers(MaxPool, AvgPool, image=True, spatial_ranks=(1, 2))
def lower_pool(lowering: Lowering, op: RuntimeOperator) -> None:
    """The largest or the mean element of every window."""
    layer: Any = None if op.layer is None else op.layer.layer
    if len(op.outputs) != 1 or getattr(layer, "returns", 0) != 0:
        raise NotLoweredError("there is no kernel for the indices of maxima")
    x = _operand(lowering, op, layer.spatial_rank)
    out = _sizes(lowering, op)
    axes = [
        Axis(
            size=size,
            count=count,
            kernel=window.kernel,
            stride=window.stride,
            dilation=window.dilation,
            padding=window.before,
        )
        for size, count, window in zip(x.shape[2:], out, layer.windows, strict=True)
    ]
    average = isinstance(layer, AvgPool)
    _emit(
        lowering,
        op,
        x,
        "average" if average else "max",
        axes,
        counts_padding=layer.count_include_pad if average else True,
        divisor=layer.divisor_override if average else None,
    )


@lowers(AdaptiveAvgPool, image=True, spatial_ranks=(1, 2))
def lower_adaptive(lowering: Lowering, op: RuntimeOperator) -> None:
    """The mean of windows that cover an image evenly."""
    layer: Any = None if op.layer is None else op.layer.layer
    x, sizes = _operand(lowering, op, layer.spatial_rank), _sizes(lowering, op)
    if sizes == [1, 1]:
        emit_global_average(lowering, op, x)
        return
    axes = [Axis(size=size, count=count, is_adaptive=True) for size, count in zip(x.shape[2:], sizes, strict=True)]
    _emit(lowering, op, x, "average", axes)


def _operand(lowering: Lowering, op: RuntimeOperator, spatial_rank: int) -> View:
    x = lowering.tensor(op, 0)
    if len(x.shape) != spatial_rank + 2:
        raise NotLoweredError("there is no kernel without a batch dimension")
    return x


def _sizes(lowering: Lowering, op: RuntimeOperator) -> list[int]:
    return [dim or 0 for dim in lowering.float_spec(op.outputs[0]).shape[2:]]


def _emit(
    lowering: Lowering,
    op: RuntimeOperator,
    x: View,
    mode: Mode,
    axes: Sequence[Axis],
    *,
    counts_padding: bool = True,
    divisor: int | None = None,
) -> None:
    if x.strides[1] != 1 and x.shape[1] != 1:
        copy = channels_last(x.shape)
        lowering.copy(x, copy, [op.name])
        x = copy
    fused = lowering.absorb(op)
    target, result = _result(lowering, fused, len(x.shape))
    image = x.derive(as_image(x.phantom))
    if image is None:
        raise NotLoweredError("its operand is no image")
    n, channels = image.shape[:2]
    down, across = [Axis(size=1, count=1), *axes][-2:]
    epilogue, operands = lowering.epilogue(fused, as_image)
    kernel = Pool(
        mode=mode,
        batch=n,
        channels=channels,
        down=down,
        across=across,
        counts_padding=counts_padding,
        divisor=divisor,
        source=_dense(image),
        target=_dense(result),
        lanes=lowering.host.lanes,
        epilogue=epilogue,
    )
    traffic = x.phantom.nbytes + target.phantom.nbytes
    lowering.emit(kernel, [pointer(image), pointer(result), *operands], fused.operators, traffic)
    lowering.define(fused.operand, target)


def _dense(view: View) -> Strides:
    """Strides of (n, c, h, w) with channels side by side, also where there is one."""
    strides = image_strides(view)
    return Strides(strides.n, strides.h, strides.w)


def _result(lowering: Lowering, fused: Fused, rank: int) -> tuple[View, View]:
    """Where the result lies, and the same seen as (n, c, h, w)."""
    spec = lowering.float_spec(fused.operand)
    target = lowering.place(fused.operand, is_image=spec.rank == rank)
    seen = target.derive(as_image(target.phantom))
    if seen is None or (seen.strides[1] != 1 and seen.shape[1] != 1):
        raise NotLoweredError("its result does not lie channels-last")
    return target, seen
