"""Expressions of quantisation: floats to codes, which are whole numbers that fit a byte, and back."""

from __future__ import annotations

import math

from engine.compiler.kernels.expr import Apply, Expr, Number, apply

WIDEST = 255.0
# Scales whose reciprocal and remainders are normal numbers.
_LEAST, _LARGEST = 2.0**-100, 2.0**100


def scale_of(low: Expr, high: Expr) -> Expr:
    """Return the quantisation step for a range that includes 0; 1 for an empty range."""
    wide = apply("div", apply("sub", high, low), WIDEST)
    return apply("where", apply("eq", wide, 0.0), 1.0, wide)


def code_of(value: Expr, zero: Expr | float, low: float = 0.0, high: float = WIDEST) -> Expr:
    """Return the nearest integer, halves to even, plus the zero point, clamped; 0 for NaN."""
    ends = [_minus(end, zero) for end in (low, high)]
    return apply("code", apply("limit", _numeric(value, zero, low), *ends), zero)


def quantised(x: Expr, scale: Expr, zero: Expr, low: float, high: float) -> Expr:
    """Return the code of x / scale."""
    if not (isinstance(scale, Number) and isinstance(zero, Number) and _LEAST < scale.value < _LARGEST):
        return code_of(apply("div", x, scale), zero, low, high)
    # A quotient needs finite numbers: the limits come first.
    least, most = ((end - zero.value) * scale.value for end in (low, high))
    x = apply("limit", _numeric(x, zero.value * scale.value, low), least, most)
    return apply("code", apply("quotient", x, scale, 1 / scale.value), zero)


def simplified(tree: Expr) -> Expr:
    """Return an expression of codes in fewer functions, with the same value.

    A ReLU or a clip within narrower limits is part of these. Codes that are dequantised at once are rounded only.
    """
    if not isinstance(tree, Apply):
        return tree
    arguments = tuple(map(simplified, tree.arguments))
    inner = arguments[0]
    if tree.name == "limit" and isinstance(inner, Apply) and inner.name in ("relu", "clip"):
        x, *own = inner.arguments
        limits = [end.value for end in (*arguments[1:], *own) if isinstance(end, Number)]
        least, most, low, high = limits if len(limits) == 4 else (*limits[:2], 0.0, math.inf)
        # NaN becomes the lower limit, which must stay.
        if len(limits) == 2 + len(own) and low <= least <= high:
            return apply("limit", x, least, min(most, high))
    if tree.name in ("sub", "mul") and isinstance(inner, Apply) and inner.name == "code":
        nearest, zero = inner.arguments
        if tree.name == "sub" and arguments[1] == zero:
            return apply("round", nearest)
        if tree.name == "mul" and zero == Number(0.0):
            return apply("mul", apply("round", nearest), arguments[1])
    return Apply(tree.name, arguments)


def dequantised(code: Expr, scale: Expr | float, zero: Expr | float) -> Expr:
    """Return (code - zero) * scale."""
    return apply("mul", code if zero in (0.0, Number(0.0)) else apply("sub", code, zero), scale)


def zero_of(low: Expr, scale: Expr) -> Expr:
    """Return the zero point."""
    return code_of(apply("div", apply("neg", low), scale), 0.0)


def _numeric(value: Expr, zero: Expr | float, low: float) -> Expr:
    """Return a value, with NaN as the one whose code is 0; where codes are not negative, the lower limit does that."""
    return value if low == 0 else apply("where", apply("eq", value, value), value, _minus(0.0, zero))


def _minus(number: float, other: Expr | float) -> Expr | float:
    if isinstance(other, Number):
        other = other.value
    return number - other if isinstance(other, float | int) else apply("sub", number, other)
