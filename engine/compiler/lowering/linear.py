"""Linear layers: the direct convolution's kernel on rows instead of pixels."""

from __future__ import annotations

import numpy as np

from engine.compiler.kernels.kernel import Strides
from engine.compiler.lowering.builder import Lowering
from engine.compiler.lowering.conv import Geometry, direct
from engine.compiler.lowering.fusion import absorb, epilogue
from engine.compiler.lowering.rules import NO_BORDER, NotLoweredError, lowers
from engine.compiler.lowering.steps import pointer
from engine.compiler.storage import View, constant, row_major
from engine.graph.operator import RuntimeOperator
from engine.layers.linear import Linear
from engine.tensor import Array


@lowers(Linear)
def lower_linear(lowering: Lowering, op: RuntimeOperator) -> None:
    """x @ weight.T + bias as a 1x1 convolution of a row of pixels."""
    weight, bias = lowering.weight(op, 1), lowering.weight(op, 2, optional=True)
    if weight is None or weight.ndim != 2 or (bias is not None and bias.shape != (len(weight),)):
        raise NotLoweredError("its weight or bias has an unusual shape")
    x = lowering.tensor(op, 0)
    lowering.float_spec(op.outputs[0])
    rows = _as_rows(x)
    if rows is None:
        copy = row_major(x.shape, x.dtype)
        lowering.copy(x, copy, [op.name])
        rows = _as_rows(copy)
    if rows is None:
        raise NotLoweredError("its operand does not lie in rows")
    fused = absorb(lowering, op)
    target = lowering.place(fused.operand, is_image=False)
    result = _as_rows(target)
    if result is None:
        raise NotLoweredError("its result does not lie in rows")
    tail, operands = epilogue(lowering, fused, _rows_as_image)
    count = rows.shape[0]
    geometry = Geometry(kernel=(1, 1), stride=(1, 1), dilation=(1, 1), border=NO_BORDER, groups=1)
    kernel = direct(
        lowering,
        n=1,
        rows=1,
        columns=count,
        weight=weight[:, :, None, None],
        geometry=geometry,
        source=Strides(0, 0, rows.strides[0]),
        target=Strides(0, 0, result.strides[0]),
        epilogue=tail,
    )
    packed = constant(kernel.pack(weight[:, :, None, None], bias))
    traffic = x.phantom.nbytes + target.phantom.nbytes + packed.phantom.nbytes
    lowering.emit(kernel, [pointer(rows), pointer(packed), pointer(target), *operands], fused.operators, traffic)
    lowering.define(fused.operand, target)


def _as_rows(x: View) -> View | None:
    """(..., I) as (rows, I) with neighbours side by side, without a copy."""
    if x.shape[-1] > 1 and x.phantom.strides[-1] != x.phantom.itemsize:
        return None
    return x.derive(x.phantom.reshape(-1, x.shape[-1]))


def _rows_as_image(array: Array) -> Array:
    """(..., O) as (1, O, 1, rows)."""
    return np.moveaxis(array.reshape(-1, array.shape[-1]), 1, 0)[None, :, None, :]
