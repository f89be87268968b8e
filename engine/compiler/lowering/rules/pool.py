"""Pooling with windows, adaptive pooling, and means over whole images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from engine.compiler.kernels.pooling.pool import Pool as PoolKernel
from engine.compiler.kernels.pooling.pool_axis import Axis
from engine.compiler.lowering.fusion import Fused, absorb, epilogue
from engine.compiler.lowering.lowering import Lowering
from engine.compiler.lowering.rules.geometry import as_image
from engine.compiler.lowering.rules.registry import NotLoweredError, lowers
from engine.compiler.lowering.rules.rows import emit_global_average
from engine.compiler.lowering.steps import dense_strides, pointer
from engine.compiler.storage import View
from engine.graph.operator import RuntimeOperator
from engine.layers.pooling.adaptive_pool import AdaptiveAvgPool
from engine.layers.pooling.max_pool import MaxPool
from engine.layers.pooling.pool import AvgPool, Pool

Mode = Literal["max", "average"]


@lowers(MaxPool, AvgPool, image=True, spatial_ranks=(1, 2))
def lower_pool(lowering: Lowering, op: RuntimeOperator) -> None:
    """The largest or the mean element of every window."""
    layer = lowering.layer(op, Pool)
    if len(op.outputs) != 1 or getattr(layer, "returns", 0) != 0:
        raise NotLoweredError("there is no kernel for the indices of maxima")
    x, out = _operand(lowering, op, layer.spatial_rank), lowering.float_spec(op.outputs[0]).sizes[2:]
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
    if isinstance(layer, AvgPool):
        if any(axis.dilation != 1 for axis in axes):
            raise NotLoweredError("there is no kernel for the mean of dilated windows")
        counts_padding, divisor = layer.count_include_pad, layer.divisor_override
        _emit(lowering, op, x, "average", axes, counts_padding=counts_padding, divisor=divisor)
    else:
        _emit(lowering, op, x, "max", axes)


@lowers(AdaptiveAvgPool, image=True, spatial_ranks=(1, 2))
def lower_adaptive(lowering: Lowering, op: RuntimeOperator) -> None:
    """The mean of windows that cover an image evenly."""
    layer = lowering.layer(op, AdaptiveAvgPool)
    x, sizes = _operand(lowering, op, layer.spatial_rank), lowering.float_spec(op.outputs[0]).sizes[2:]
    if set(sizes) == {1}:
        emit_global_average(lowering, op, x)
        return
    axes = [Axis(size=size, count=count, is_adaptive=True) for size, count in zip(x.shape[2:], sizes, strict=True)]
    _emit(lowering, op, x, "average", axes)


def _operand(lowering: Lowering, op: RuntimeOperator, spatial_rank: int) -> View:
    x = lowering.tensor(op, 0)
    if len(x.shape) != spatial_rank + 2:
        raise NotLoweredError("there is no kernel without a batch dimension")
    return x


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
    x = lowering.image(op, x)
    fused = absorb(lowering, op)
    target, result = _result(lowering, fused, len(x.shape))
    image = x.derive(as_image(x.phantom))
    if image is None:
        raise NotLoweredError("its operand is no image")
    n, channels = image.shape[:2]
    down, across = [Axis(size=1, count=1), *axes][-2:]
    tail, operands = epilogue(lowering, fused, as_image)
    kernel = PoolKernel(
        mode=mode,
        batch=n,
        channels=channels,
        down=down,
        across=across,
        counts_padding=counts_padding,
        divisor=divisor,
        source=dense_strides(image),
        target=dense_strides(result),
        host=lowering.host,
        epilogue=tail,
    )
    traffic = x.phantom.nbytes + target.phantom.nbytes
    lowering.emit(kernel, [pointer(image), pointer(result), *operands], fused.operators, traffic)
    lowering.define(fused.operand, target)


def _result(lowering: Lowering, fused: Fused, rank: int) -> tuple[View, View]:
    """Where the result lies, and the same seen as (n, c, h, w)."""
    spec = lowering.float_spec(fused.operand)
    target = lowering.place(fused.operand, is_image=spec.rank == rank)
    seen = target.derive(as_image(target.phantom))
    if seen is None:
        raise NotLoweredError("its result does not lie channels-last")
    return target, seen
