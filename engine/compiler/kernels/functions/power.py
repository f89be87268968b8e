"""x**y = 2**(y log2 |x|), the logarithm and the product in float64; and hypot.

Source: C's pow for the special cases; own minimax fit (tests/data/compiler/fit_math.py).
"""

from __future__ import annotations

from typing import Final

from engine.compiler.codegen.ir import Function, Value, lanes_of, vector
from engine.compiler.kernels.functions.arithmetic import (
    ROUNDER,
    absolute,
    copysign,
    double_bits,
    double_constant,
    integer,
    like,
    low_bits,
    maximum,
    minimum,
    to_double,
    to_float,
)
from engine.compiler.kernels.functions.exponential import exp2_of_parts

# log2(m) / s in s**2, s = (m - 1) / (m + 1), m from sqrt(1/2) to sqrt(2): 4e-12.
_LOG2: Final = (0.3407301023723137, 0.4116727189965964, 0.5770835849717568, 0.9617966733416967, 2.8853900817900864)
_SQRT_HALF_HIGH_BITS: Final = 0x3FE6A09E
_INFINITY: Final = float("inf")


def power(f: Function, x: Value, y: Value) -> Value:
    """Emit x**y within 1.3 ulp, subnormal results too; special cases as in C."""
    magnitude = absolute(f, x)
    exponent = f.fmul(to_double(f, y), _log2(f, magnitude))
    exponent = minimum(f, maximum(f, exponent, double_constant(x, -151.0)), double_constant(x, 129.0))
    rounder = double_constant(x, ROUNDER + 254)
    rounded = f.fadd(exponent, rounder)
    fraction = to_float(f, f.fsub(exponent, f.fsub(rounded, rounder)))
    return with_edges(f, x, y, exp2_of_parts(f, fraction, low_bits(f, rounded)))


def hypot(f: Function, x: Value, y: Value) -> Value:
    """Emit sqrt(x**2 + y**2) within 1 ulp; infinite if either is."""
    a, b = to_double(f, x), to_double(f, y)
    length = to_float(f, f.intrinsic("sqrt", f.fadd(f.fmul(a, a), f.fmul(b, b))))
    infinity = like(x, _INFINITY)
    is_infinite = f.binary("or", _is_infinite(f, x), _is_infinite(f, y))
    return f.select(is_infinite, infinity, length)


def _log2(f: Function, x: Value) -> Value:
    """Emit log2(x) of a non-negative float32, in float64 to 1e-12; NaN is not preserved."""
    lanes = lanes_of(x.type)
    whole = double_bits(f, to_double(f, x))
    high = f.convert("trunc", integer(f, "lshr", whole, 32), vector(lanes, "i32"))
    k = integer(f, "ashr", integer(f, "sub", high, _SQRT_HALF_HIGH_BITS), 20)
    shift = integer(f, "shl", f.convert("sext", k, whole.type), 52)
    m = f.convert("bitcast", f.binary("sub", whole, shift), vector(lanes, "double"))
    s = f.fdiv(f.fsub(m, double_constant(x, 1.0)), f.fadd(m, double_constant(x, 1.0)))
    z = f.fmul(s, s)
    series = double_constant(x, _LOG2[0])
    for each in _LOG2[1:]:
        series = f.fma(series, z, double_constant(x, each))
    result = f.fma(s, series, f.convert("sitofp", k, m.type))
    result = f.select(f.compare("oeq", x, like(x, 0.0)), double_constant(x, -_INFINITY), result)
    return f.select(f.compare("oeq", x, like(x, _INFINITY)), double_constant(x, _INFINITY), result)


def with_edges(f: Function, x: Value, y: Value, result: Value) -> Value:
    """Emit the power with the sign of x where y is odd, and with the special cases a logarithm does not cover."""
    zero, one = like(x, 0.0), like(x, 1.0)
    half = f.fmul(y, like(x, 0.5))
    is_whole = f.compare("oeq", f.intrinsic("trunc", y), y)
    is_odd = f.binary("and", is_whole, f.compare("une", f.intrinsic("trunc", half), half))
    result = f.select(is_odd, copysign(f, result, x), result)
    is_negative = f.binary("and", f.compare("olt", x, zero), f.compare("ogt", x, like(x, -_INFINITY)))
    is_fractional = f.compare("une", f.intrinsic("trunc", y), y)
    is_nan = f.binary("or", f.compare("uno", x, y), f.binary("and", is_negative, is_fractional))
    result = f.select(is_nan, like(x, float("nan")), result)
    is_unit = f.binary("and", f.compare("oeq", absolute(f, x), one), _is_infinite(f, y))
    is_one = f.binary("or", f.binary("or", f.compare("oeq", x, one), f.compare("oeq", y, zero)), is_unit)
    return f.select(is_one, one, result)


def _is_infinite(f: Function, x: Value) -> Value:
    return f.compare("oeq", absolute(f, x), like(x, _INFINITY))
