"""Expression rules of element-wise operators under ONNX's names and with its parameters."""

from __future__ import annotations

from collections.abc import Sequence

from engine.compiler.kernels.expr import Expr, apply
from engine.compiler.lowering.terms.activations import clamp
from engine.compiler.lowering.terms.functions import power
from engine.compiler.lowering.terms.term import Argument, expression_for, prepares
from engine.layers.elementwise.ternary import Clamp
from engine.layers.onnx.elementwise import activation, arithmetic


@expression_for(activation.OnnxPRelu)
def prelu(layer: activation.OnnxPRelu, x: Expr, slope: Expr | None = None) -> Expr | None:
    """Return x where x >= 0, else slope * x."""
    return None if slope is None else apply("where", apply("lt", x, 0.0), apply("mul", x, slope), x)


@expression_for(activation.Clip)
def clip(layer: activation.Clip, x: Expr, low: Expr | None = None, high: Expr | None = None) -> Expr | None:
    """Return min(max(x, min), max), of those bounds that are given."""
    return clamp(Clamp(), x, low, high)


@prepares(activation.Clip)
def _bounds(layer: activation.Clip, x: Argument, *bounds: Argument) -> Sequence[Argument] | None:
    """Return the bounds as single numbers, whatever their shape."""
    if any(each.array is None and each.shape for each in bounds):
        return None
    return x, *(each if each.array is None else Argument(each.array.reshape(())) for each in bounds)


@expression_for(arithmetic.Pow)
def onnx_power(layer: arithmetic.Pow, x: Expr, exponent: Expr) -> Expr | None:
    """Return x ** exponent, in the dtype of x."""
    return power(x, exponent)


@prepares(arithmetic.Pow)
def _exponent(layer: arithmetic.Pow, x: Argument, exponent: Argument) -> Sequence[Argument] | None:
    """Return a known integer exponent in the dtype of x; other exponents unchanged."""
    value = exponent.array
    if value is None or value.dtype.kind not in "iu":
        return x, exponent
    return x, Argument(value.item() if value.size == 1 and value.ndim == 0 else value.astype(x.dtype))
