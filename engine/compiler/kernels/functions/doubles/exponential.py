"""Exponentials: e**x = 2**n * e**r with n the nearest integer to x / log(2), |r| <= log(2) / 2, and Taylor's series.

n is rounded by adding 1.5 * 2**52: the sum's low bits are n, and shifted into the exponent's place they are 2**n.
"""

from __future__ import annotations

import math
from typing import Final

from engine.compiler.codegen.ir import Function, Value, lanes_of, vector
from engine.compiler.kernels.functions.arithmetic import between, integer, like, polynomial
from engine.compiler.kernels.functions.wide import ROUNDER, wide_bits

LOG2_E: Final = 1.4426950408889634
LN2_HEAD: Final = 6.93147180369123816490e-01  # 33 bits: n times it is exact
LN2_TAIL: Final = 1.90821492927058770002e-10
_TERMS: Final = 13
# e**r, 2**r and (e**r - 1 - r) / r**2, highest power first: what is left out is below 4e-18 of them.
_EXP: Final = tuple(1 / math.factorial(k) for k in range(_TERMS, -1, -1))
_EXP2: Final = tuple(math.log(2) ** k / math.factorial(k) for k in range(_TERMS, -1, -1))
_EXPM1: Final = tuple(1 / math.factorial(k + 2) for k in range(_TERMS - 1, -1, -1))


def exp(f: Function, x: Value) -> Value:
    """e**x within 1.5 ulp, subnormal results too; 0 below -746, infinite above 709.8."""
    held = between(f, x, -746.0, 710.0)
    n, rounded = _nearest(f, held, LOG2_E, 2046)
    return _scaled_twice(f, polynomial(f, _rest(f, held, n), _EXP), wide_bits(f, rounded))


def exp2(f: Function, x: Value) -> Value:
    """2**x within 1.5 ulp, subnormal results too."""
    held = between(f, x, -1076.0, 1025.0)
    n, rounded = _nearest(f, held, 1.0, 2046)
    return _scaled_twice(f, polynomial(f, f.fsub(held, n), _EXP2), wide_bits(f, rounded))


def exp2_of_parts(f: Function, large: Value, small: Value) -> Value:
    """2**(large + small) within 1.5 ulp, small by far the smaller one."""
    held = between(f, f.fadd(large, small), -1076.0, 1025.0)
    n, rounded = _nearest(f, held, 1.0, 2046)
    near = between(f, f.fadd(f.fsub(large, n), small), -1.0, 1.0)
    return _scaled_twice(f, polynomial(f, near, _EXP2), wide_bits(f, rounded))


def expm1(f: Function, x: Value) -> Value:
    """e**x - 1 within 2 ulp."""
    held = between(f, x, -40.0, 710.0)
    n, rounded = _nearest(f, held, LOG2_E, 1022)
    rest = _rest(f, held, n)
    mantissa = f.fma(f.fmul(rest, rest), polynomial(f, rest, _EXPM1), rest)
    scale = _from_bits(f, integer(f, "shl", wide_bits(f, rounded), 52))
    # In halves: twice the scale would overflow before the result does.
    half = f.fma(scale, mantissa, f.fsub(scale, like(x, 0.5)))
    return f.select(f.compare("oeq", x, like(x, 0.0)), x, f.fadd(half, half))


def _nearest(f: Function, x: Value, factor: float, bias: int) -> tuple[Value, Value]:
    """The integer nearest to x * factor, and a float64 whose low bits are that integer plus a bias."""
    rounder = like(x, ROUNDER + bias)
    rounded = f.fma(x, like(x, factor), rounder)
    return f.fsub(rounded, rounder), rounded


def _rest(f: Function, x: Value, n: Value) -> Value:
    """x - n * log(2)"""
    return f.fma(n, like(x, -LN2_TAIL), f.fma(n, like(x, -LN2_HEAD), x))


def _scaled_twice(f: Function, mantissa: Value, whole: Value) -> Value:
    """mantissa * 2**n in two steps, of which neither overflows; the low bits of ``whole`` hold n + 2046."""
    both = integer(f, "shl", whole, 52)
    half = integer(f, "and", integer(f, "lshr", both, 1), 0x7FF0000000000000)
    return f.fmul(f.fmul(mantissa, _from_bits(f, half)), _from_bits(f, f.binary("sub", both, half)))


def _from_bits(f: Function, x: Value) -> Value:
    """The float64 an i64 holds the bits of."""
    return f.convert("bitcast", x, vector(lanes_of(x.type), "double"))
