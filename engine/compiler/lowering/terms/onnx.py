"""Expression rules of element-wise operators under ONNX's names and with its parameters."""

from __future__ import annotations

from collections.abc import Sequence

from engine.compiler.kernels.expr import Expr, Number, apply
from engine.compiler.lowering.terms.activations import clamp
from engine.compiler.lowering.terms.functions import power, quotient
from engine.compiler.lowering.terms.term import Argument, expression_for, prepares
from engine.layers.elementwise.ternary import Clamp
from engine.layers.onnx.elementwise import activation, arithmetic


@expression_for(activation.OnnxHardSigmoid)
def hard_sigmoid(layer: activation.OnnxHardSigmoid, x: Expr) -> Expr:
    """Return min(max(alpha * x + beta, 0), 1)."""
    return apply("clip", apply("add", apply("mul", x, layer.alpha), layer.beta), 0.0, 1.0)


@expression_for(activation.Swish)
def swish(layer: activation.Swish, x: Expr) -> Expr:
    """Return x / (1 + exp(-alpha * x))."""
    return apply("div", x, apply("add", apply("exp", apply("neg", apply("mul", x, layer.alpha))), 1.0))


@expression_for(activation.ThresholdedRelu)
def thresholded(layer: activation.ThresholdedRelu, x: Expr) -> Expr:
    """Return x where x > alpha, else 0."""
    return apply("where", apply("gt", x, layer.alpha), x, 0.0)


@expression_for(activation.Shrink)
def shrink(layer: activation.Shrink, x: Expr) -> Expr:
    """Return x + bias where x < -lambd, x - bias where x > lambd, else 0."""
    above = apply("where", apply("gt", x, layer.lambd), apply("sub", x, layer.bias), 0.0)
    return apply("where", apply("lt", x, -layer.lambd), apply("add", x, layer.bias), above)


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


@expression_for(arithmetic.OnnxMean)
def mean(layer: arithmetic.OnnxMean, first: Expr, *others: Expr) -> Expr | None:
    """Return the mean of tensors that broadcast."""
    total = first
    for each in others:
        total = apply("add", total, each)
    return quotient(total, Number(float(len(others) + 1)))


@expression_for(arithmetic.Mod)
def mod(layer: arithmetic.Mod, x: Expr, other: Expr) -> Expr:
    """Return the remainder, with the divisor's or the dividend's sign."""
    return apply("fmod" if layer.fmod else "remainder", x, other)


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
