"""Elementwise arithmetic on arrays like PyTorch's on the CPU, where numpy differs.

All operands have one dtype already and broadcast; none is changed. float16 and bfloat16 arrive as float32.
The caller switches numpy's warnings off: an overflow gives an infinity, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.errors import ExpressionError
from engine.tensor import Array


def sign(x: Array) -> Array:
    """Compute -1, 0 or 1; 0 for NaN, unlike numpy."""
    return np.asarray(np.asarray(x > 0).view(np.int8) - np.asarray(x < 0).view(np.int8), dtype=x.dtype)


def rsqrt(x: Array) -> Array:
    """Compute 1 / sqrt(x)."""
    return np.asarray(np.reciprocal(np.sqrt(x)))


def divide(a: Array, b: Array) -> Array:
    """Compute a / b; complex64 in complex128, as numpy's reciprocal is infinite where b is a denormal number."""
    if a.dtype == np.complex64:
        return np.asarray(np.true_divide(a, b, dtype=np.complex128).astype(np.complex64))
    return np.asarray(np.true_divide(a, b))


def keeping_integers(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Return a rounding that leaves integers unchanged, which numpy would turn into floats."""

    def rounded(x: Array) -> Array:
        return x if x.dtype.kind in "iu" else function(x)

    return rounded


def floor_divide(a: Array, b: Array) -> Array:
    """Compute a / b rounded down.

    Raises:
        ExpressionError: for integers divided by zero.
    """
    _check_divisor(b)
    return np.asarray(np.floor_divide(a, b))


def remainder(a: Array, b: Array) -> Array:
    """Compute the remainder of floor_divide; it has the divisor's sign, and a zero the dividend's, unlike numpy.

    Raises:
        ExpressionError: for integers divided by zero.
    """
    _check_divisor(b)
    if b.dtype.kind != "f":
        return np.asarray(np.remainder(a, b))
    rest = np.asarray(np.fmod(a, b))
    np.add(rest, b, out=rest, where=(rest != 0) & ((rest < 0) != (b < 0)))
    return rest


def fmod(a: Array, b: Array) -> Array:
    """Compute the remainder of a division rounded towards zero; it has the sign of the dividend.

    Raises:
        ExpressionError: for integers divided by zero.
    """
    _check_divisor(b)
    return np.asarray(np.fmod(a, b))


def _check_divisor(b: Array) -> None:
    if b.dtype.kind in "iu" and not b.all():
        raise ExpressionError("integer division by zero")


def power(base: Array, exponent: Array) -> Array:
    """Compute base ** exponent; integers wrap, and a negative power of an integer other than 1 and -1 is 0."""
    if exponent.dtype.kind == "f" and (exponent == 0.5).any():
        root = (exponent == 0.5) & ((base == 0) | (base == -np.inf))  # numpy uses sqrt here, which gives another sign
        return np.where(root, np.abs(base), np.power(base, exponent))
    if exponent.dtype.kind != "i" or not (exponent < 0).any():
        return np.asarray(np.power(base, exponent))
    positive = np.power(base, np.maximum(exponent, 0))
    reciprocal = np.where(base == 1, 1, np.where(base == -1, 1 - 2 * (exponent & 1), 0))
    return np.where(exponent < 0, reciprocal, positive).astype(base.dtype)


def power_of_number(base: Array, exponent: Array) -> Array:
    """Compute base ** exponent for a Python number: PyTorch has special cases, visible in sqrt(-0.0) and sqrt(-inf)."""
    shorter = _SHORTER.get(exponent.item()) if base.dtype.kind in "fc" else None
    return power(base, exponent) if shorter is None else np.asarray(shorter(base))


_SHORTER: dict[object, Callable[[Array], Array]] = {
    0.5: np.sqrt,
    -0.5: rsqrt,
    1: np.positive,
    2: np.square,
    3: lambda x: x * x * x,
    -1: np.reciprocal,
    -2: lambda x: np.reciprocal(x * x),
}


def logaddexp(a: Array, b: Array) -> Array:
    """Compute log(exp(a) + exp(b)) without overflow."""
    if a.dtype.kind != "c":
        return np.asarray(np.logaddexp(a, b))
    larger = a.real >= b.real
    high, low = np.where(larger, a, b), np.where(larger, b, a)
    return np.asarray(high + np.log1p(np.exp(low - high)))
