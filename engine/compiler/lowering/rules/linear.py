"""Linear layers: the direct convolution's kernel on rows instead of pixels."""

from __future__ import annotations

import numpy as np

from engine.compiler.kernels.kernel import Strides
from engine.compiler.lowering.fusion import absorb, epilogue
from engine.compiler.lowering.lowering import Lowering
from engine.compiler.lowering.rules.conv_kernels import direct
from engine.compiler.lowering.rules.geometry import Geometry
from engine.compiler.lowering.rules.registry import NO_BORDER, NotLoweredError, lowers
from engine.compiler.lowering.rules.rows import as_rows, in_rows
from engine.compiler.lowering.steps import pointer
from engine.compiler.storage import constant
from engine.graph.operator import RuntimeOperator
from engine.layers.linear.linear import Linear
from engine.tensor import Array


@lowers(Linear, rows=True)
def lower_linear(lowering: Lowering, op: RuntimeOperator) -> None:
    """x @ weight.T + bias as a 1x1 convolution of a row of pixels."""
    weight, bias = lowering.weight(op, 1), lowering.weight(op, 2, optional=True)
    if weight is None or weight.ndim != 2 or (bias is not None and bias.shape != (len(weight),)):
        raise NotLoweredError("its weight or bias has an unusual shape")
    x = lowering.tensor(op, 0)
    lowering.float_spec(op.outputs[0])
    rows = in_rows(lowering, op, x)
    fused = absorb(lowering, op)
    target = lowering.place(fused.operand, is_image=False)
    result = as_rows(target)
    if result is None:
        raise NotLoweredError("its result does not lie in rows")
    tail, operands = epilogue(lowering, fused, _rows_as_image)
    geometry = Geometry(kernel=(1, 1), stride=(1, 1), dilation=(1, 1), border=NO_BORDER, groups=1)
    kernel = direct(
        lowering,
        n=1,
        rows=1,
        columns=rows.shape[0],
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


def _rows_as_image(array: Array) -> Array:
    """(..., O) as (1, O, 1, rows)."""
    return np.moveaxis(array.reshape(-1, array.shape[-1]), 1, 0)[None, :, None, :]
