"""Layer normalisation: the last dimensions as rows, with the element-wise operators after it."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from engine.compiler.kernels.rows.layer_norm import LayerNorm as Kernel
from engine.compiler.lowering.fusion import absorb, epilogue
from engine.compiler.lowering.lowering import Lowering
from engine.compiler.lowering.rules.registry import FLOAT32, NotLoweredError, lowers
from engine.compiler.lowering.rules.rows import as_rows, in_rows
from engine.compiler.lowering.steps import pointer
from engine.compiler.storage import constant
from engine.graph.operator import RuntimeOperator
from engine.layers.normalisation.layer_norm import LayerNorm, RMSNorm
from engine.tensor import Array


@lowers(LayerNorm, rows=True)
def lower_layer_norm(lowering: Lowering, op: RuntimeOperator) -> None:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last dimensions."""
    layer = lowering.layer(op, LayerNorm)
    scales = [lowering.weight(op, index, optional=True) for index in (1, 2)]
    _emit(lowering, op, layer.normalized_shape, scales, eps=layer.eps, is_centred=True)


@lowers(RMSNorm, rows=True)
def lower_rms_norm(lowering: Lowering, op: RuntimeOperator) -> None:
    """x / sqrt(mean(x²) + eps) * weight over the last dimensions."""
    layer = lowering.layer(op, RMSNorm)
    eps = float(np.finfo(FLOAT32).eps) if layer.eps is None else layer.eps
    scales = [lowering.weight(op, 1, optional=True), None]
    _emit(lowering, op, layer.normalized_shape, scales, eps=eps, is_centred=False)


def _emit(
    lowering: Lowering,
    op: RuntimeOperator,
    normalized_shape: tuple[int, ...],
    scales: list[Array | None],
    *,
    eps: float,
    is_centred: bool,
) -> None:
    x = lowering.tensor(op, 0)
    lowering.float_spec(op.outputs[0])
    columns, count = math.prod(normalized_shape), len(normalized_shape)
    if any(scale is not None and scale.size != columns for scale in scales):
        raise NotLoweredError("its weight or bias has an unusual shape")
    rows = in_rows(lowering, op, x, count)
    fused = absorb(lowering, op)
    target = lowering.place(fused.operand, is_image=False)
    result = as_rows(target, count)
    if result is None:
        raise NotLoweredError("its result does not lie in rows")
    tail, operands = epilogue(lowering, fused, partial(_as_image, columns=columns))
    kernel = Kernel(
        rows=rows.shape[0],
        columns=columns,
        source=rows.strides[0],
        target=result.strides[0],
        eps=eps,
        is_centred=is_centred,
        has_weight=scales[0] is not None,
        has_bias=scales[1] is not None,
        host=lowering.host,
        epilogue=tail,
    )
    packed = [pointer(constant(scale.reshape(-1))) for scale in scales if scale is not None]
    pointers = [pointer(rows), pointer(result), *packed, *operands]
    lowering.emit(kernel, pointers, fused.operators, x.phantom.nbytes + target.phantom.nbytes)
    lowering.define(fused.operand, target)


def _as_image(array: Array, columns: int) -> Array:
    """(..., columns) as (1, columns, rows, 1)."""
    return np.moveaxis(array.reshape(-1, columns), 1, 0)[None, :, :, None]
