"""Rules of element-wise functions of an input and further operands."""

from __future__ import annotations

from engine.compiler.kernels.expr import Expr, apply
from engine.compiler.lowering.terms.registry import expression_for
from engine.layers.elementwise import mathematics, ternary

_LARGEST = 3.4028234663852886e38


@expression_for(ternary.Clamp)
def clamp(layer: ternary.Clamp, x: Expr, low: Expr | None = None, high: Expr | None = None) -> Expr:
    """min(max(x, min), max)"""
    if low is not None and high is not None:
        return apply("clip", x, low, high)
    if low is not None:
        return apply("max", x, low)
    return x if high is None else apply("min", x, high)


@expression_for(ternary.ClampMin)
def clamp_min(layer: ternary.ClampMin, x: Expr, low: Expr) -> Expr:
    """max(x, min)"""
    return apply("max", x, low)


@expression_for(ternary.ClampMax)
def clamp_max(layer: ternary.ClampMax, x: Expr, high: Expr) -> Expr:
    """min(x, max)"""
    return apply("min", x, high)


@expression_for(ternary.Lerp)
def lerp(layer: ternary.Lerp, start: Expr, end: Expr, weight: Expr) -> Expr:
    """start + weight * (end - start)"""
    return apply("lerp", start, end, weight)


@expression_for(ternary.AddCMul)
def addcmul(layer: ternary.AddCMul, x: Expr, a: Expr, b: Expr, factor: Expr) -> Expr:
    """x + value * tensor1 * tensor2"""
    return apply("addcmul", x, a, b, factor)


@expression_for(ternary.AddCDiv)
def addcdiv(layer: ternary.AddCDiv, x: Expr, a: Expr, b: Expr, factor: Expr) -> Expr:
    """x + value * tensor1 / tensor2"""
    return apply("addcdiv", x, a, b, factor)


@expression_for(mathematics.NanToNum)
def nan_to_num(layer: mathematics.NanToNum, x: Expr) -> Expr:
    """x with NaN and the infinities replaced."""
    infinite = (
        (float("inf"), _LARGEST if layer.posinf is None else layer.posinf),
        (float("-inf"), -_LARGEST if layer.neginf is None else layer.neginf),
    )
    result = x
    for value, replacement in infinite:
        result = apply("where", apply("eq", x, value), replacement, result)
    return apply("where", apply("isnan", x), layer.nan or 0.0, result)
