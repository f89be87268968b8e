"""Trigonometric and hyperbolic functions and their inverses.

An angle is reduced to r = x - n pi / 2, |r| <= pi / 4, in float64, with pi / 2 in two parts as Cody and Waite. That is
exact enough for |x| up to 2**28.

Vectors with a larger angle take the reduction of Payne and Hanek. For a float32 x = m 2**k, only x 2 / pi modulo 4
matters. Bits of 2 / pi whose product with x is a multiple of 4 are skipped, and the next hundred bits suffice: no
float32 is nearer to a multiple of pi / 2 than 2**-30. They are split into parts of 28 bits, so that each product with
the 24 bits of m is exact. The exponent selects one of four offsets.

Source: own minimax fits (tests/data/compiler/fit_math.py).
"""

from __future__ import annotations

import math
from typing import Final

from engine.compiler.codegen.ir import Function, Value, constant
from engine.compiler.kernels.functions.arithmetic import (
    ROUNDER,
    absolute,
    between,
    bits,
    copysign,
    double_constant,
    from_bits,
    has_sign,
    integer,
    like,
    low_bits,
    maximum,
    minimum,
    polynomial,
    sqrt,
    to_double,
    to_float,
)
from engine.compiler.kernels.functions.exponential import exp_parts
from engine.compiler.kernels.functions.logarithm import log1p

_HALF_PI_HEAD: Final = 1.5707963109016418  # 25 bits: n times it is exact without a fused multiply-add too
_HALF_PI_TAIL: Final = 1.5893254773528197e-08
_QUARTER_PI: Final = 0.7853982
# (sin(r) - r) / r**3, (cos(r) - 1 + r**2 / 2) / r**4 in r**2: 4e-9, 1e-10.
_SIN: Final = (-0.00019518287444952875, 0.008332189172506332, -0.16666655242443085)
_COS: Final = (2.443256562401075e-05, -0.0013887310633435845, 0.04166664555668831)
# (asin(x) - x) / x**3 in x**2 up to 1/4: 5e-9.
_ASIN: Final = (0.042158305644989014, 0.024184778332710266, 0.04546914994716644, 0.074953094124794, 0.16666752099990845)
# (atan(x) - x) / x**3 in x**2 up to 1: 1.7e-8.
_ATAN: Final = (0.0029197228141129017, -0.01636413298547268, 0.043205857276916504, -0.07551723718643188,
                0.10665785521268845, -0.14211003482341766, 0.19993767142295837, -0.33333152532577515)  # fmt: skip
# pi / 2 as the nearest float32 and the remainder.
_RIGHT: Final = (1.5707963705062866, -4.371139000186241e-08)
_LARGE_ANGLE: Final = 2.0**28
_TWO_OVER_PI: Final = 0xA2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE5163ABDEBBC561
"""2 / pi, its first 256 bits after the point."""
_BITS: Final = 256
_PART_BITS: Final = 28
_PARTS: Final = 4
# Scales: x 2**-scale is a whole number below 2**49, for x below the next scale's first.
_SCALES: Final = (5, 30, 55, 80)
_FIRST: Final = 2.0**54, 2.0**79, 2.0**104
# (sinh(x) - x) / x**3 in x**2 up to 1: 2.4e-8.
_SINH: Final = (0.00020372832659631968, 0.008330274373292923, 0.1666671633720398)
_LN2: Final = 0.6931471805599453
_SQUARES_OVERFLOW: Final = 2.0**60


def sin(f: Function, x: Value) -> Value:
    """Emit the sine within 1.6 ulp."""
    sine, cosine, quadrant = _parts(f, x)
    return _keeping_zero(f, x, _rotated(f, sine, cosine, quadrant))


def cos(f: Function, x: Value) -> Value:
    """Emit the cosine within 1.6 ulp."""
    sine, cosine, quadrant = _parts(f, x)
    return _rotated(f, sine, cosine, integer(f, "add", quadrant, 1))


def tan(f: Function, x: Value) -> Value:
    """Emit the tangent within 4 ulp."""
    sine, cosine, quadrant = _parts(f, x)
    is_odd = _is_odd(f, quadrant)
    ratio = f.fdiv(f.select(is_odd, cosine, sine), f.select(is_odd, sine, cosine))
    return _keeping_zero(f, x, _negated(f, ratio, integer(f, "shl", quadrant, 31)))


def asin(f: Function, x: Value) -> Value:
    """Emit the arc sine within 2.5 ulp; NaN beyond 1."""
    magnitude = absolute(f, x)
    is_small, small = _asin_small(f, magnitude)
    # asin(x) = pi / 2 - 2 asin(sqrt((1 - x) / 2))
    large = f.fsub(like(x, _RIGHT[0]), f.fsub(f.fadd(small, small), like(x, _RIGHT[1])))
    return copysign(f, f.select(is_small, small, large), x)


def acos(f: Function, x: Value) -> Value:
    """Emit the arc cosine within 1.5 ulp; NaN beyond 1."""
    is_small, small = _asin_small(f, absolute(f, x))
    is_negative = f.compare("olt", x, like(x, 0.0))
    straight = f.fsub(like(x, _RIGHT[0]), f.fsub(copysign(f, small, x), like(x, _RIGHT[1])))
    twice = f.fadd(small, small)
    obtuse = f.fsub(like(x, 2 * _RIGHT[0]), f.fsub(twice, like(x, 2 * _RIGHT[1])))
    return f.select(is_small, straight, f.select(is_negative, obtuse, twice))


def atan(f: Function, x: Value) -> Value:
    """Emit the arc tangent within 2 ulp."""
    return copysign(f, _angle(f, absolute(f, x), like(x, 1.0)), x)


def atan2(f: Function, y: Value, x: Value) -> Value:
    """Emit the angle of the point (x, y) within 2 ulp; zeros and infinities as in C."""
    sharp = _angle(f, absolute(f, y), absolute(f, x))
    is_left = has_sign(f, x)
    blunt = f.fsub(like(x, 2 * _RIGHT[0]), f.fsub(sharp, like(x, 2 * _RIGHT[1])))
    return copysign(f, f.select(is_left, blunt, sharp), y)


def _parts(f: Function, x: Value) -> tuple[Value, Value, Value]:
    """Emit sin(r), cos(r), and the number of quarter turns removed."""
    usual = _reduced(f, x)
    is_large = f.compare("oge", absolute(f, x), like(x, _LARGE_ANGLE))

    def mixed() -> list[Value]:
        return [f.select(is_large, a, b) for a, b in zip(_reduced_exactly(f, x), usual, strict=True)]

    r, quadrant = f.select_lazily(usual, f.any(is_large), mixed)
    r = between(f, r, -_QUARTER_PI, _QUARTER_PI)
    z = f.fmul(r, r)
    sine = f.fma(f.fmul(r, z), polynomial(f, z, _SIN), r)
    cosine = f.fma(f.fmul(z, z), polynomial(f, z, _COS), f.fma(z, like(x, -0.5), like(x, 1.0)))
    return sine, cosine, quadrant


def _reduced(f: Function, x: Value) -> tuple[Value, Value]:
    """Emit the reduced angle, and the number of quarter turns removed in the low bits of an integer."""
    angle = to_double(f, x)
    rounded = f.fma(angle, double_constant(x, 2 / math.pi), double_constant(x, ROUNDER))
    turns = f.fsub(rounded, double_constant(x, ROUNDER))
    angle = f.fma(turns, double_constant(x, -_HALF_PI_HEAD), angle)
    return to_float(f, f.fma(turns, double_constant(x, -_HALF_PI_TAIL), angle)), low_bits(f, rounded)


def _rotated(f: Function, sine: Value, cosine: Value, quadrant: Value) -> Value:
    """Emit the sine after ``quadrant`` quarter turns."""
    value = f.select(_is_odd(f, quadrant), cosine, sine)
    return _negated(f, value, integer(f, "shl", integer(f, "lshr", quadrant, 1), 31))


def _keeping_zero(f: Function, x: Value, value: Value) -> Value:
    """Emit the value, but x itself where x is 0: x + x**3 loses the sign of -0."""
    return f.select(f.compare("oeq", x, like(x, 0.0)), x, value)


def _is_odd(f: Function, quadrant: Value) -> Value:
    return f.compare("ne", integer(f, "and", quadrant, 1), constant(0, quadrant.type))


def _negated(f: Function, x: Value, sign: Value) -> Value:
    """Emit x with its sign flipped where the sign bit of ``sign`` is set."""
    return from_bits(f, f.binary("xor", bits(f, x), sign))


def _asin_small(f: Function, x: Value) -> tuple[Value, Value]:
    """Emit whether x <= 1/2, and asin(x), else asin(sqrt((1 - x) / 2)), for x >= 0."""
    is_small = f.compare("ole", x, like(x, 0.5))
    folded = f.fma(x, like(x, -0.5), like(x, 0.5))
    z = f.select(is_small, f.fmul(x, x), folded)
    root = f.select(is_small, x, sqrt(f, folded))
    return is_small, f.fma(f.fmul(root, z), polynomial(f, z, _ASIN), root)


def _angle(f: Function, y: Value, x: Value) -> Value:
    """Emit the angle of a point with non-negative coordinates."""
    least, most = minimum(f, y, x), maximum(f, y, x)
    ratio = f.fdiv(least, most)
    # 0 / 0 gives the angle 0, inf / inf gives pi / 4.
    zero = like(x, 0.0)
    equal = f.select(f.compare("oeq", most, zero), zero, like(x, 1.0))
    ratio = f.select(f.compare("oeq", least, most), equal, ratio)
    z = f.fmul(ratio, ratio)
    angle = f.fma(f.fmul(ratio, z), polynomial(f, z, _ATAN), ratio)
    steep = f.fsub(like(x, _RIGHT[0]), f.fsub(angle, like(x, _RIGHT[1])))
    return f.select(f.compare("ogt", y, x), steep, angle)


def _reduced_exactly(f: Function, x: Value) -> tuple[Value, Value]:
    """Emit x - n pi / 2 as float32, and n in the low bits of an i32, for |x| >= 2**28."""
    magnitude = absolute(f, x)
    beyond = [f.compare("oge", magnitude, like(x, first)) for first in _FIRST]

    def by_size(numbers: tuple[float, ...]) -> Value:
        found = double_constant(x, numbers[0])
        for mask, number in zip(beyond, numbers[1:], strict=True):
            found = f.select(mask, double_constant(x, number), found)
        return found

    whole = f.fmul(to_double(f, x), by_size(tuple(2.0**-scale for scale in _SCALES)))
    products = [f.fmul(whole, by_size(part)) for part in zip(*map(_parts_of_two_over_pi, _SCALES), strict=True)]
    turns = f.fadd(_modulo_4(f, x, products[0]), _modulo_4(f, x, products[1]))
    rounded = f.fadd(f.fadd(turns, products[2]), double_constant(x, ROUNDER))
    rest = f.fadd(f.fsub(turns, f.fsub(rounded, double_constant(x, ROUNDER))), f.fadd(products[2], products[3]))
    return to_float(f, f.fmul(rest, double_constant(x, math.pi / 2))), low_bits(f, rounded)


def _modulo_4(f: Function, x: Value, product: Value) -> Value:
    """Emit a product below 2**52 modulo 4, exactly."""
    rounder = double_constant(x, ROUNDER)
    fours = f.fsub(f.fadd(f.fmul(product, double_constant(x, 0.25)), rounder), rounder)
    return f.fsub(product, f.fmul(fours, double_constant(x, 4.0)))


def _parts_of_two_over_pi(scale: int) -> tuple[float, ...]:
    """Return 2 / pi times 2**scale modulo 4, its bits from 2**1 down, in parts."""
    bits = (_TWO_OVER_PI << scale) % (4 << _BITS)
    parts = []
    for k in range(1, _PARTS + 1):
        low = _BITS + 2 - k * _PART_BITS
        parts.append(math.ldexp(bits >> low, low - _BITS))
        bits %= 1 << low
    return tuple(parts)


def sinh(f: Function, x: Value) -> Value:
    """Emit the hyperbolic sine within 2 ulp; infinite where it exceeds float32."""
    magnitude = absolute(f, x)
    half = _half_exp(f, magnitude)
    large = f.fsub(half, f.fdiv(like(x, 0.25), half))
    z = f.fmul(x, x)
    small = f.fma(f.fmul(magnitude, z), polynomial(f, z, _SINH), magnitude)
    return copysign(f, f.select(f.compare("olt", magnitude, like(x, 1.0)), small, large), x)


def cosh(f: Function, x: Value) -> Value:
    """Emit the hyperbolic cosine within 2 ulp; infinite where it exceeds float32."""
    half = _half_exp(f, absolute(f, x))
    return f.fadd(half, f.fdiv(like(x, 0.25), half))


def asinh(f: Function, x: Value) -> Value:
    """Emit asinh as log(1 + x + x**2 / (1 + sqrt(1 + x**2))), for x >= 0, within 2 ulp."""
    magnitude = absolute(f, x)
    root = sqrt(f, f.fma(magnitude, magnitude, like(x, 1.0)))
    part = f.fdiv(magnitude, f.fadd(root, like(x, 1.0)))
    return copysign(f, _log_of_more(f, magnitude, f.fma(magnitude, part, magnitude)), x)


def acosh(f: Function, x: Value) -> Value:
    """Emit acosh as log(1 + t + sqrt(2 t + t**2)), t = x - 1, within 2 ulp; NaN below 1."""
    above = f.fsub(x, like(x, 1.0))
    root = sqrt(f, f.fma(above, above, f.fadd(above, above)))
    result = _log_of_more(f, x, f.fadd(above, root))
    return f.select(f.compare("ult", x, like(x, 1.0)), like(x, float("nan")), result)


def atanh(f: Function, x: Value) -> Value:
    """Emit atanh as log(1 + 2 x / (1 - x)) / 2, for x >= 0, within 2.5 ulp; infinite at 1, NaN beyond."""
    magnitude = absolute(f, x)
    ratio = f.fdiv(f.fadd(magnitude, magnitude), f.fsub(like(x, 1.0), magnitude))
    return copysign(f, f.fmul(log1p(f, ratio), like(x, 0.5)), x)


def _half_exp(f: Function, x: Value) -> Value:
    """Emit e**x / 2 for x >= 0."""
    power = exp_parts(f, minimum(f, x, like(x, 90.0)), doublings=2)
    return f.fmul(f.fmul(power.mantissa, like(x, 0.5)), power.scale)


def _log_of_more(f: Function, x: Value, y: Value) -> Value:
    """Emit log(1 + y), or log(2 x) where x**2 overflows."""
    is_large = f.compare("ogt", x, like(x, _SQUARES_OVERFLOW))
    logarithm = log1p(f, f.select(is_large, x, y))
    return f.fadd(logarithm, f.select(is_large, like(x, _LN2), like(x, 0.0)))
