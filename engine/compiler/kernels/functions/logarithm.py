"""Logarithms, powers and hypot.

A logarithm splits x = 2**k (1 + f) with f from sqrt(1/2) - 1 to sqrt(2) - 1, and log(1 + f) = f + f**2 P(f). A power is
x**y = 2**(y log2 |x|), with the logarithm and the product in float64.

Source: own minimax fits (tests/data/compiler/fit_math.py); log(2) in two parts as Cody and Waite; C's pow for special
cases of powers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from engine.compiler.codegen.ir import Function, Value, constant, lanes_of, vector
from engine.compiler.kernels.functions.arithmetic import (
    ROUNDER,
    absolute,
    bits,
    copysign,
    double_bits,
    double_constant,
    from_bits,
    integer,
    like,
    logarithm_edges,
    low_bits,
    maximum,
    minimum,
    negative,
    polynomial,
    to_double,
    to_float,
)
from engine.compiler.kernels.functions.exponential import exp2_of_parts, exp_down

_SQRT_HALF_BITS: Final = 0x3F3504F3
_LEAST_NORMAL: Final = 2.0**-126
# log2(m) / s in s**2, s = (m - 1) / (m + 1), m from sqrt(1/2) to sqrt(2): 4e-12.
_LOG2: Final = (0.3407301023723137, 0.4116727189965964, 0.5770835849717568, 0.9617966733416967, 2.8853900817900864)
_SQRT_HALF_HIGH_BITS: Final = 0x3FE6A09E
_INFINITY: Final = float("inf")


@dataclass(frozen=True, slots=True)
class _Base:
    """log_b(x) = k log_b(2) + f log_b(e) + f**2 P(f), both constants as a head and a tail.

    The heads of log_b(2) have few bits: k times one is exact.
    """

    two: tuple[float, float]
    e: tuple[float, float]
    rest: tuple[float, ...]


_NATURAL: Final = _Base(
    two=(0.693145751953125, 1.428606820309417e-06),
    e=(1.0, 0.0),
    rest=(-0.07609259337186813, 0.12901417911052704, -0.13246344029903412, 0.1418227255344391, -0.16608718037605286,
          0.20001961290836334, -0.2500160038471222, 0.33333325386047363, -0.49999988079071045),
)  # fmt: skip
_BINARY: Final = _Base(
    two=(1.0, 0.0),
    e=(1.44268798828125, 7.0526075433825794e-06),
    rest=(-0.11096178740262985, 0.18721675872802734, -0.19119133055210114, 0.2044484168291092, -0.2395811825990677,
          0.2885737717151642, -0.3606984317302704, 0.4808981716632843, -0.7213473320007324),
)  # fmt: skip
_DECIMAL: Final = _Base(
    two=(0.30102539062500, 4.6050389811952147e-06),
    e=(0.4342944920063019, -1.0103050118726031e-08),
    rest=(-0.03329908475279808, 0.056241802871227264, -0.05753602460026741, 0.06156148016452789, -0.07212549448013306,
          0.08686871081590652, -0.10858084261417389, 0.14476478099822998, -0.21714718639850616),
)  # fmt: skip


def log(f: Function, x: Value) -> Value:
    """Emit the natural logarithm within 1 ulp; -inf at 0, NaN below."""
    return _log(f, x, _NATURAL)


def log2(f: Function, x: Value) -> Value:
    """Emit log(x) / log(2) within 2 ulp; exact for powers of two."""
    return _log(f, x, _BINARY)


def log10(f: Function, x: Value) -> Value:
    """Emit log(x) / log(10) within 2 ulp."""
    return _log(f, x, _DECIMAL)


def log1p(f: Function, x: Value) -> Value:
    """Emit log(1 + x) within 2 ulp; -inf at -1, NaN below."""
    sum_ = f.fadd(x, like(x, 1.0))
    shift, k = _exponent(f, sum_)
    # (1 + x) / 2**k - 1 without the error of the sum. The scale is 4 / 2**k, which is a normal number for every k.
    scale = from_bits(f, f.binary("sub", constant(0x40800000, shift.type), shift))
    rest = f.fma(scale, like(x, 0.25), like(x, -1.0))
    fraction = f.fma(f.fmul(x, like(x, 0.25)), scale, rest)
    result = logarithm_edges(f, sum_, _combined(f, k, fraction, _NATURAL))
    return f.select(f.compare("olt", absolute(f, x), like(x, 2.0**-25)), x, result)


def log1p_exp_minus(f: Function, x: Value) -> Value:
    """Emit log(1 + e**-x) for x >= 0 within 2 ulp."""
    e = exp_down(f, negative(f, x))
    is_large = f.compare("ogt", e, like(x, 2**0.5 - 1))
    # 1 + e is below 2, and its k is 0 or 1.
    scale = f.select(is_large, like(x, 0.5), like(x, 1.0))
    k = f.select(is_large, like(x, 1.0), like(x, 0.0))
    return _combined(f, k, f.fma(e, scale, f.fsub(scale, like(x, 1.0))), _NATURAL)


def _log(f: Function, x: Value, base: _Base) -> Value:
    is_small = f.compare("olt", x, like(x, _LEAST_NORMAL))
    normal = f.select(is_small, f.fmul(x, like(x, 2.0**23)), x)
    shift, k = _exponent(f, normal)
    k = f.fadd(k, f.select(is_small, like(x, -23.0), like(x, 0.0)))
    fraction = f.fsub(from_bits(f, f.binary("sub", bits(f, normal), shift)), like(x, 1.0))
    return logarithm_edges(f, x, _combined(f, k, fraction, base))


def _exponent(f: Function, x: Value) -> tuple[Value, Value]:
    """Emit k as bits in the exponent field, and as a float: x / 2**k is from sqrt(1/2) to sqrt(2)."""
    above = integer(f, "sub", bits(f, x), _SQRT_HALF_BITS)
    k = integer(f, "ashr", above, 23)
    return integer(f, "shl", k, 23), f.convert("sitofp", k, vector(lanes_of(x.type)))


def _combined(f: Function, k: Value, fraction: Value, base: _Base) -> Value:
    """Emit log_b(2**k (1 + fraction)), small terms first."""
    total = f.fmul(f.fmul(fraction, fraction), polynomial(f, fraction, base.rest))
    for factor, number in ((k, base.two[1]), (fraction, base.e[1]), (fraction, base.e[0]), (k, base.two[0])):
        if number == 1.0:
            total = f.fadd(factor, total)
        elif number:
            total = f.fma(factor, like(k, number), total)
    return total


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
