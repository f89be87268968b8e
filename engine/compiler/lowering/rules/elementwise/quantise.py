"""Quantisation of floats to bytes and back, as maps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.compiler.kernels.expr import Number, Operand
from engine.compiler.kernels.quantising import dequantised, quantised
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.rules.composition import elements_step
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import Lowered, NotLoweredError, derived
from engine.compiler.storage import FLOAT32, View, like
from engine.layers.onnx.products.quantise import DequantizeLinear, QuantizeLinear
from engine.layers.operands.axes import checked_axis
from engine.layers.operands.bounds import extremes
from engine.passes.support.byte_products import BYTES
from engine.tensor import DType


@kernels_for(QuantizeLinear, beside_maps=True)
def lower_quantise(context: Context) -> Lowered:
    """Lower quantisation to a map, with one scale for all or one a slice of an axis."""
    x, spec = context.tensor(0), context.lowering.spec(context.op.outputs[0])
    layer = context.layer(QuantizeLinear)
    if spec is None or spec.dtype not in BYTES or context.lowering.quantises:
        raise NotLoweredError("there is no kernel for its integers")
    scale, zero = _spread(context, layer, 1, x, (FLOAT32,)), _spread(context, layer, 2, x, BYTES)
    moved = [] if zero is None else [zero]
    low, high = map(float, extremes(spec.dtype))
    tree = quantised(Operand(0), Operand(1), Operand(2) if moved else Number(0.0), low, high)
    target = like(x, spec.dtype)
    return context.lowered(target, elements_step(context, target, tree, [x, _needed(scale), *moved], "float"))


@kernels_for(DequantizeLinear, beside_maps=True)
def lower_dequantise(context: Context) -> Lowered:
    """Lower dequantisation to a map, with one scale for all or one a slice of an axis."""
    x, layer = context.elements(0), context.layer(DequantizeLinear)
    if x.dtype not in BYTES or context.result_spec.dtype != FLOAT32:
        raise NotLoweredError("there is no kernel for its integers")
    scale, zero = _spread(context, layer, 1, x, (FLOAT32,)), _spread(context, layer, 2, x, BYTES)
    target = context.allocate(is_image=True if x.is_channels_last and not x.is_row_major else None)
    tree = dequantised(Operand(0), Operand(1), 0.0 if zero is None else Operand(2))
    operands = [x, _needed(scale), *([] if zero is None else [zero])]
    return context.lowered(target, elements_step(context, target, tree, operands, "float"))


def _needed(view: View | None) -> View:
    if view is None:
        raise NotLoweredError("it has no scale")
    return view


def _spread(
    context: Context, layer: QuantizeLinear | DequantizeLinear, index: int, x: View, dtypes: Sequence[DType]
) -> View | None:
    """Return a scale or zero point as it broadcasts to x; None where it is left out."""
    value = context.argument(index)
    if value is None or (isinstance(value, int) and value == 0):
        return None
    if isinstance(value, np.ndarray):
        value = context.lowering.stored(value)
    if not isinstance(value, View) or value.dtype not in dtypes or layer.block_size:
        raise NotLoweredError("there is no kernel for its scale or zero point")
    if value.meta.size == 1 and value.meta.ndim < 2:
        return derived(value, value.meta.reshape((1,) * len(x.shape)))
    axis = checked_axis(layer.axis, len(x.shape))
    if value.meta.ndim != 1 or len(value.meta) != x.shape[axis]:
        raise NotLoweredError("its scale or zero point is given for blocks")
    return derived(value, value.meta.reshape(-1, *(1,) * (len(x.shape) - 1 - axis)))
