"""Floating-point numbers that are symbolic sizes divided by a power of two: ``size * 2.0``, ``size / 2 + 0.5``.

Arithmetic on them is exact as long as floats of the given precision hold every intermediate whole number; inexact
arithmetic (a factor of 0.3) uses plain numbers. ``floor`` and the like give sizes again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final, cast

from engine.ir.dims import Dim, specialise

FLOAT32_BITS: Final = 24
FLOAT64_BITS: Final = 53
_LARGEST_PART: Final = 2**12
_PAIRS: Final = ("add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "pow")
_SINGLE: Final = ("neg", "pos", "abs", "bool", "floor", "ceil", "trunc", "round", "int", "hash")


class InexactError(ArithmeticError):
    """Arithmetic whose result depends on rounding, and so on the values."""


class Ratio:
    """Symbolic size divided by a power of two, usable as a ``float`` and an instance of it.

    Args:
        size: the dividend.
        by: the divisor.
        bits: of the significand; it holds the dividend.
    """

    __slots__ = ("bits", "by", "size")
    __class__ = property(lambda self: float)

    def __init__(self, size: Any, by: int, bits: int) -> None:
        self.size, self.by, self.bits = size, by, bits

    def specialise(self) -> float:
        """Return the plain number; guards the size to its hint."""
        return cast(int, specialise(self.size)) / self.by

    def __float__(self) -> float:
        return self.specialise()

    def __repr__(self) -> str:
        return f"({self.size})/{self.by}"


def _of_number(name: str) -> Callable[..., Any]:
    """Return a method of ``float`` that is called on the plain number."""
    method = getattr(float, name)
    return lambda self, *others: method(self.specialise(), *map(_plain, others))


def _plain(value: Any) -> Any:
    return value.specialise() if isinstance(value, (Dim, Ratio)) else value


for _name in (*_PAIRS, *(f"r{each}" for each in _PAIRS), *_SINGLE, "eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Ratio, f"__{_name}__", _of_number(f"__{_name}__"))
setattr(Ratio, "is_integer", _of_number("is_integer"))  # noqa: B010


def ratio(size: Any, by: int, bits: int) -> Any:
    """Return a size divided by a power of two; a plain size gives a float.

    Raises:
        InexactError: a float does not hold the size.
    """
    while by > 1 and not isinstance(size, Dim) and size % 2 == 0:
        size, by = size // 2, by // 2
    # A size of memory times a small number is always a whole number of float64.
    if bits < FLOAT64_BITS and not -(2**bits) <= size <= 2**bits:
        raise InexactError(f"{size} has more than {bits} bits")
    return Ratio(size, by, bits) if isinstance(size, Dim) else size / by


def is_real(value: object) -> bool:
    """Return whether a value is a floating-point number, or a symbolic one."""
    return isinstance(value, (float, Ratio))


def parts(value: Any) -> tuple[Any, int]:
    """Return size and divisor of a number.

    Raises:
        InexactError: it is not a fraction of small numbers with a power of two as the divisor.
    """
    if isinstance(value, Ratio):
        return value.size, value.by
    if isinstance(value, Dim) or type(value) is int:
        return value, 1
    if not math.isfinite(value):
        raise InexactError(value)
    exact = Fraction(value)
    if exact.denominator > _LARGEST_PART or abs(exact.numerator) > 2**FLOAT32_BITS:
        raise InexactError(value)
    return exact.numerator, exact.denominator


def add(a: Any, b: Any, bits: int) -> Any:
    """Return the sum of two numbers."""
    (first, by), (second, divisor) = parts(a), parts(b)
    common = max(by, divisor)
    return ratio(first * (common // by) + second * (common // divisor), common, bits)


def subtract(a: Any, b: Any, bits: int) -> Any:
    """Return the difference of two numbers."""
    return add(a, negative(b, bits), bits)


def negative(a: Any, bits: int) -> Any:
    """Return the number with the other sign."""
    size, by = parts(a)
    return ratio(-size, by, bits)


def multiply(a: Any, b: Any, bits: int) -> Any:
    """Return the product of two numbers."""
    (first, by), (second, divisor) = parts(a), parts(b)
    return ratio(first * second, by * divisor, bits)


def divide(a: Any, b: Any, bits: int) -> Any:
    """Return the quotient of two numbers.

    Raises:
        InexactError: the divisor is not a power of two.
    """
    (first, by), (second, divisor) = parts(a), parts(b)
    if isinstance(second, Dim) or second <= 0 or second & (second - 1):
        raise InexactError(b)
    return ratio(first * divisor, by * second, bits)


def floor(a: Any) -> Any:
    """Return a number rounded down, as a size."""
    size, by = parts(a)
    return size // by


def ceil(a: Any) -> Any:
    """Return a number rounded up, as a size."""
    size, by = parts(a)
    return -(-size // by)


def truncate(a: Any) -> Any:
    """Return a number rounded towards zero, as a size."""
    size, _ = parts(a)
    return floor(a) if size >= 0 else ceil(a)
