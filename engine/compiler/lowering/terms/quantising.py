"""Quantisation with known scales and zero points: expressions of floats that read or store bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from engine.compiler.kernels.expr import Expr, Number
from engine.compiler.kernels.quantising import dequantised, quantised
from engine.compiler.lowering.terms.term import Argument, converts, expression_for, prepares
from engine.layers.onnx.products.quantise import DequantizeLinear, QuantizeLinear
from engine.layers.operands.axes import checked_axis
from engine.layers.operands.bounds import extremes
from engine.tensor import TensorSpec

_ZERO: Final = Argument(0.0)


@prepares(QuantizeLinear, DequantizeLinear)
def with_scales(
    layer: QuantizeLinear | DequantizeLinear, x: Argument, scale: Argument, zero: Argument = _ZERO
) -> Sequence[Argument] | None:
    """Return x, and scale and zero point as they broadcast to it; also the least and the largest code."""
    if not isinstance(x.value, TensorSpec) or x.value.shape is None or layer.block_size:
        return None
    if scale.array is None or scale.dtype != np.float32 or not (zero.array is not None or zero.value in (None, 0)):
        return None
    found = [_spread(each, layer.axis, x.value) for each in (scale, zero)]
    if found[0] is None or found[1] is None:
        return None
    ends = extremes(zero.dtype if zero.array is not None else np.dtype(np.uint8))
    limits = map(Argument, map(float, ends)) if isinstance(layer, QuantizeLinear) else ()
    return [x, found[0], found[1], *limits]


def _spread(argument: Argument, axis: int, x: TensorSpec) -> Argument | None:
    """Return a number, or one a slice of an axis as it broadcasts to x."""
    values = argument.array
    if values is None:
        return _ZERO
    if values.size == 1 and values.ndim < 2:
        return Argument(float(values.reshape(())))
    axis = checked_axis(axis, x.rank)
    if values.ndim != 1 or len(values) != x.sizes[axis]:
        return None
    return Argument(values.astype(np.float32).reshape(-1, *(1,) * (x.rank - 1 - axis)))


@converts(QuantizeLinear)
@expression_for(QuantizeLinear, doubles=False)
def quantise(layer: QuantizeLinear, x: Expr, scale: Expr, zero: Expr, low: Number, high: Number) -> Expr:
    return quantised(x, scale, zero, low.value, high.value)


@converts(DequantizeLinear)
@expression_for(DequantizeLinear, doubles=False)
def dequantise(layer: DequantizeLinear, x: Expr, scale: Expr, zero: Expr) -> Expr:
    return dequantised(x, scale, zero)
