"""Exponentials: e**x = 2**n * e**r with n the nearest integer to x / log(2), |r| <= log(2) / 2, and a polynomial.

n is rounded by adding 1.5 * 2**23 (2**52 for float64): the low bits of the sum are n, and shifted into the exponent
field they are 2**n. Functions that name no type take vectors of either.

Source: own minimax fits (tests/data/compiler/fit_math.py), Taylor's series for float64; log(2) in two parts as Cody and
Waite.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from engine.compiler.codegen.ir import Function, Value, element_of
from engine.compiler.kernels.functions.arithmetic import between, bits, from_bits, integer, like, maximum, polynomial

LOG2_E: Final = 1.4426950408889634
# e**r for |r| <= log(2) / 2, highest power first: 3e-9.
_EXP: Final = (0.0013820999301970005, 0.008368671871721745, 0.04166826233267784, 0.1666652113199234,
               0.4999999403953552, 1.0, 1.0)  # fmt: skip
# (e**r - 1 - r) / r**2: 1.4e-8 of e**r - 1.
_EXPM1: Final = (
    0.001387032330967486,
    0.008366256020963192,
    0.04166743904352188,
    0.1666654646396637,
    0.4999999701976776,
)
# 2**r for |r| <= 1/2: 3e-9.
_EXP2: Final = (0.00015328907466027886, 0.0013390976237133145, 0.009618500247597694, 0.05550359562039375,
                0.24022647738456726, 0.6931471824645996, 1.0)  # fmt: skip

# The same with one power less: 9e-8.
_SHORT_EXP2: Final = (0.0013269535265862942, 0.009671292267739773, 0.0555071085691452, 0.24022246897220612,
                      0.6931470036506653, 1.0)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Format:
    """Floating-point type with polynomials of sufficient accuracy.

    Args:
        mantissa: bits of the mantissa.
        bias: of the exponent.
        ln2: log(2) as a head, whose multiples by n are exact, and a tail.
        exp, exp2, expm1: coefficients of e**r, 2**r and (e**r - 1 - r) / r**2, highest power first.
        exp_range, exp2_range: arguments below which the result is 0, and above which it is infinite.
        expm1_least: an argument below which e**x - 1 is -1.
    """

    mantissa: int
    bias: int
    ln2: tuple[float, float]
    exp: tuple[float, ...]
    exp2: tuple[float, ...]
    expm1: tuple[float, ...]
    exp_range: tuple[float, float]
    exp2_range: tuple[float, float]
    expm1_least: float

    @property
    def rounder(self) -> float:
        """Return the number that rounds another to an integer when added."""
        return 1.5 * 2.0**self.mantissa

    @property
    def exponent_mask(self) -> int:
        """Return the bits of the exponent."""
        return (2 * self.bias + 1) << self.mantissa


_FLOAT: Final = _Format(
    mantissa=23,
    bias=127,
    ln2=(0.693145751953125, 1.428606820309417e-06),  # 15 bits, without a fused multiply-add too
    exp=_EXP,
    exp2=_EXP2,
    expm1=_EXPM1,
    exp_range=(-104.0, 89.0),
    exp2_range=(-151.0, 129.0),
    expm1_least=-18.0,
)
_TERMS: Final = 13  # of Taylor's series; the remainder is below 4e-18
_DOUBLE: Final = _Format(
    mantissa=52,
    bias=1023,
    ln2=(6.93147180369123816490e-01, 1.90821492927058770002e-10),  # 33 bits
    exp=tuple(1 / math.factorial(k) for k in range(_TERMS, -1, -1)),
    exp2=tuple(math.log(2) ** k / math.factorial(k) for k in range(_TERMS, -1, -1)),
    expm1=tuple(1 / math.factorial(k + 2) for k in range(_TERMS - 1, -1, -1)),
    exp_range=(-746.0, 710.0),
    exp2_range=(-1076.0, 1025.0),
    expm1_least=-40.0,
)


def format_of(x: Value) -> _Format:
    """Return the format of a vector's elements."""
    return _DOUBLE if element_of(x.type) == "double" else _FLOAT


@dataclass(frozen=True, slots=True)
class Power:
    """e**x as ``mantissa * scale``, the scale a power of two."""

    mantissa: Value
    scale: Value


def exp(f: Function, x: Value) -> Value:
    """Emit e**x within 1.3 ulp (1.5 of float64), subnormals too; 0 below -104 (-746), infinite from 89 (710)."""
    own = format_of(x)
    held = between(f, x, *own.exp_range)
    n, rounded = _nearest(f, held, LOG2_E, 2 * own.bias)
    return _scaled_twice(f, polynomial(f, _remainder(f, held, n), own.exp), bits(f, rounded))


def exp2(f: Function, x: Value) -> Value:
    """Emit 2**x within 1.3 ulp (1.5 of float64), subnormal results too."""
    own = format_of(x)
    held = between(f, x, *own.exp2_range)
    n, rounded = _nearest(f, held, 1.0, 2 * own.bias)
    return exp2_of_parts(f, f.fsub(held, n), bits(f, rounded))


def exp2_of_parts(f: Function, fraction: Value, whole: Value) -> Value:
    """Emit 2**(n + fraction) within 1.3 ulp, |fraction| <= 1/2; the low bits of ``whole`` are n plus twice the bias."""
    return _scaled_twice(f, polynomial(f, fraction, format_of(fraction).exp2), whole)


def exp_down(f: Function, x: Value) -> Value:
    """Emit e**x within 1.3 ulp for x <= 71, subnormal results too, faster than ``exp``; e**71 above."""
    power = exp_parts(f, between(f, x, -104.0, 71.0), doublings=-24)
    return f.fmul(power.mantissa, power.scale)


def exp_or_zero(f: Function, x: Value) -> Value:
    """Emit e**x within 1.3 ulp for x from -87.3 to 71, e**71 above; 0 below -87.7.

    Results below are subnormal: negligible in a sum, but a product with one takes a hundred cycles.
    """
    power = exp_parts(f, between(f, x, -88.0, 71.0), doublings=0)
    return f.fmul(power.mantissa, power.scale)


def exp2_down(f: Function, x: Value) -> Value:
    """Emit 2**x of float32 within 3 ulp for x from -126 to 0, in half the time; 0 below -126.5."""
    held = maximum(f, x, like(x, -127.0))
    # Additions run in parallel to the products, which dominate.
    rounder = like(x, _FLOAT.rounder + 127)
    rounded = f.fadd(held, rounder)
    mantissa = polynomial(f, f.fsub(held, f.fsub(rounded, rounder)), _SHORT_EXP2)
    return f.fmul(mantissa, from_bits(f, integer(f, "shl", bits(f, rounded), 23)))


def exp_parts(f: Function, x: Value, *, doublings: int, negated: bool = False) -> Power:
    """Emit e**x or e**-x within 1.3 ulp, as two factors for a fused multiply-add.

    Args:
        x: bounded, so that the binary exponent of the result is from doublings - 127, where the scale is 0, to
            doublings + 127.
        doublings: powers of two moved from the scale into the mantissa: 1 to overflow to infinity, -24 to reach
            the subnormals.
    """
    sign = -1.0 if negated else 1.0
    n, rounded = _nearest(f, x, sign * LOG2_E, 127 - doublings)
    rest = _remainder(f, x, n, sign)
    mantissa = polynomial(f, rest, [c * 2.0**doublings * sign**k for k, c in zip(range(6, -1, -1), _EXP, strict=True)])
    return Power(mantissa, from_bits(f, integer(f, "shl", bits(f, rounded), 23)))


def expm1(f: Function, x: Value) -> Value:
    """Emit e**x - 1 within 2 ulp."""
    own = format_of(x)
    power, above = expm1_parts(f, between(f, x, own.expm1_least, own.exp_range[1]), doublings=1)
    # In halves: twice the scale would overflow before the result does.
    half = f.fma(power.scale, power.mantissa, above)
    return f.select(f.compare("oeq", x, like(x, 0.0)), x, f.fadd(half, half))


def expm1_down(f: Function, x: Value) -> Value:
    """Emit e**x - 1 for x <= 0 within 2 ulp; NaN stays NaN."""
    power, above = expm1_parts(f, maximum(f, x, like(x, -18.0)), doublings=0)
    return f.fma(power.scale, power.mantissa, above)


def expm1_parts(f: Function, x: Value, doublings: int) -> tuple[Power, Value]:
    """Emit 2**n / 2**doublings with e**r - 1, and the (2**n - 1) / 2**doublings to add to their product."""
    own = format_of(x)
    n, rounded = _nearest(f, x, LOG2_E, own.bias - doublings)
    rest = _remainder(f, x, n)
    mantissa = f.fma(f.fmul(rest, rest), polynomial(f, rest, own.expm1), rest)
    scale = from_bits(f, integer(f, "shl", bits(f, rounded), own.mantissa))
    return Power(mantissa, scale), f.fsub(scale, like(x, 2.0**-doublings))


def _nearest(f: Function, x: Value, factor: float, bias: int) -> tuple[Value, Value]:
    """Emit the integer nearest to x * factor, and a float whose low bits are that integer plus a bias."""
    rounder = like(x, format_of(x).rounder + bias)
    rounded = f.fma(x, like(x, factor), rounder)
    return f.fsub(rounded, rounder), rounded


def _remainder(f: Function, x: Value, n: Value, sign: float = 1.0) -> Value:
    """Emit x - sign * n * log(2)."""
    head, tail = format_of(x).ln2
    return f.fma(n, like(x, -sign * tail), f.fma(n, like(x, -sign * head), x))


def _scaled_twice(f: Function, mantissa: Value, whole: Value) -> Value:
    """Emit mantissa * 2**n in two steps, neither of which overflows; ``whole`` holds n plus twice the bias."""
    own = format_of(mantissa)
    both = integer(f, "shl", whole, own.mantissa)
    half = integer(f, "and", integer(f, "lshr", both, 1), own.exponent_mask)
    return f.fmul(f.fmul(mantissa, from_bits(f, half)), from_bits(f, f.binary("sub", both, half)))
