"""Special functions of float64: error function, its complement and inverse, log-gamma and digamma, Bessel's i0.

The formulas are those of engine.special, in the same order: Stirling's series for gamma of large numbers, recurrence
for others. i0 sums Cephes' Chebyshev series, as numpy does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from engine import special
from engine.compiler.codegen.ir import Function, Value, lanes_of, vector
from engine.compiler.kernels.functions.arithmetic import (
    absolute,
    copysign,
    integer,
    like,
    maximum,
    minimum,
    negative,
    polynomial,
)
from engine.compiler.kernels.functions.double_logarithm import log
from engine.compiler.kernels.functions.exponential import exp

# e**-x i0(x) in x / 2 - 2 up to 8.
_NEAR: Final = (
    -4.4153416464793395e-18, 3.3307945188222384e-17, -2.431279846547955e-16, 1.715391285555133e-15,
    -1.1685332877993451e-14, 7.676185498604936e-14, -4.856446783111929e-13, 2.95505266312964e-12,
    -1.726826291441556e-11, 9.675809035373237e-11, -5.189795601635263e-10, 2.6598237246823866e-09,
    -1.300025009986248e-08, 6.046995022541919e-08, -2.670793853940612e-07, 1.1173875391201037e-06,
    -4.4167383584587505e-06, 1.6448448070728896e-05, -5.754195010082104e-05, 0.00018850288509584165,
    -0.0005763755745385824, 0.0016394756169413357, -0.004324309995050576, 0.010546460394594998,
    -0.02373741480589947, 0.04930528423967071, -0.09490109704804764, 0.17162090152220877, -0.3046826723431984,
    0.6767952744094761,
)  # fmt: skip
# e**-x sqrt(x) i0(x) in 32 / x - 2 from 8 on.
_FAR: Final = (
    -7.233180487874754e-18, -4.830504485944182e-18, 4.46562142029676e-17, 3.461222867697461e-17,
    -2.8276239805165836e-16, -3.425485619677219e-16, 1.7725601330565263e-15, 3.8116806693526224e-15,
    -9.554846698828307e-15, -4.150569347287222e-14, 1.54008621752141e-14, 3.8527783827421426e-13,
    7.180124451383666e-13, -1.7941785315068062e-12, -1.3215811840447713e-11, -3.1499165279632416e-11,
    1.1889147107846439e-11, 4.94060238822497e-10, 3.3962320257083865e-09, 2.266668990498178e-08,
    2.0489185894690638e-07, 2.8913705208347567e-06, 6.889758346916825e-05, 0.0033691164782556943,
    0.8044904110141088,
)  # fmt: skip
_BOUND: Final = 8.0


def i0(f: Function, x: Value) -> Value:
    """Emit the modified Bessel function of order 0 with relative error 1e-15; infinite from 709.8 on."""
    x, bound, two = absolute(f, x), like(x, _BOUND), like(x, 2.0)
    near = _series(f, f.fsub(f.fmul(minimum(f, x, bound), like(x, 0.5)), two), _NEAR)
    large = maximum(f, x, bound)
    far = _series(f, f.fsub(f.fdiv(like(x, 32.0), large), two), _FAR)
    far = f.fdiv(far, f.intrinsic("sqrt", large))
    return f.fmul(exp(f, x), f.select(f.compare("ogt", x, bound), far, near))


def _series(f: Function, x: Value, coefficients: Sequence[float]) -> Value:
    """Emit a sum of Chebyshev polynomials of x / 2, by Clenshaw's rule."""
    zero = like(x, 0.0)
    before, last, this = zero, zero, like(x, coefficients[0])
    for each in coefficients[1:]:
        before, last = last, this
        this = f.fadd(f.fsub(f.fmul(x, last), before), like(x, each))
    return f.fmul(f.fsub(this, before), like(x, 0.5))


# sin(y) / y in y**2 up to (pi / 2)**2: 1e-19.
_SINE: Final = tuple((-1) ** k / math.factorial(2 * k + 1) for k in range(12, -1, -1))


def lgamma(f: Function, x: Value) -> Value:
    """Emit log(|gamma(x)|) to 1e-14; infinite at 0 and the negative integers."""
    magnitude, zero, one = absolute(f, x), like(x, 0.0), like(x, 1.0)
    positive = _positive(f, f.select(f.compare("oeq", magnitude, zero), one, magnitude))
    sine = absolute(f, _sin_pi(f, magnitude))
    reflected = f.fsub(like(x, math.log(math.pi)), log(f, sine))
    reflected = f.fsub(f.fsub(reflected, log(f, magnitude)), positive)
    result = f.select(f.compare("ogt", x, zero), positive, reflected)
    is_pole = f.binary("and", f.compare("ole", x, zero), f.compare("oeq", x, f.intrinsic("floor", x)))
    return f.select(is_pole, like(x, math.inf), result)


def _positive(f: Function, x: Value) -> Value:
    """Emit lgamma for x > 0."""
    one, two, end = like(x, 1.0), like(x, 2.0), like(x, special.STIRLING_FROM)
    inverse = f.fdiv(one, maximum(f, x, end))
    half = f.fsub(x, like(x, 0.5))
    large = f.fma(half, f.fsub(log(f, x), one), like(x, 0.5 * math.log(2 * math.pi) - 0.5))
    large = f.fma(inverse, polynomial(f, f.fmul(inverse, inverse), special.STIRLING), large)
    moved, factor = minimum(f, x, end), one
    for _ in range(int(special.STIRLING_FROM) - 2):
        is_above, less = f.compare("ogt", moved, two), f.fsub(moved, one)
        factor = f.select(is_above, f.fmul(factor, less), factor)
        moved = f.select(is_above, less, moved)
    is_below = f.compare("olt", moved, one)
    base = f.select(is_below, f.fadd(moved, one), moved)
    # From x itself: x + 1 is rounded, and near the zero at 1 the distance to it determines the result.
    zeros = f.fmul(f.fsub(moved, one), f.select(is_below, moved, f.fsub(moved, two)))
    sign = f.select(is_below, like(x, -1.0), one)
    logarithm = f.fmul(sign, log(f, f.select(is_below, moved, factor)))
    small = f.fma(zeros, polynomial(f, f.fsub(f.fadd(base, base), like(x, 3.0)), special.LGAMMA), logarithm)
    return f.select(f.compare("olt", x, end), small, large)


def digamma(f: Function, x: Value) -> Value:
    """Emit the derivative of lgamma to 1e-14; infinite at 0, NaN at the negative integers."""
    zero, one, end = like(x, 0.0), like(x, 1.0), like(x, special.STIRLING_FROM)
    is_negative = f.compare("olt", x, zero)
    moved, shift = f.select(is_negative, f.fsub(one, x), x), zero
    for _ in range(int(special.STIRLING_FROM)):  # digamma(x) = digamma(x + 1) - 1/x
        is_small = f.compare("olt", moved, end)
        shift = f.select(is_small, f.fadd(shift, f.fdiv(one, moved)), shift)
        moved = f.select(is_small, f.fadd(moved, one), moved)
    inverse = f.fdiv(one, moved)
    square = f.fmul(inverse, inverse)
    series = f.fmul(square, polynomial(f, square, special.STIRLING_SLOPE))
    result = f.fsub(f.fsub(f.fsub(log(f, moved), f.fmul(inverse, like(x, 0.5))), series), shift)
    cosine = _sin_pi(f, f.fadd(absolute(f, x), like(x, 0.5)))
    reflected = f.fsub(result, f.fdiv(f.fmul(like(x, math.pi), cosine), _sin_pi(f, x)))
    is_whole = f.compare("oeq", x, f.intrinsic("floor", x))
    result = f.select(is_negative, f.select(is_whole, like(x, math.nan), reflected), result)
    return f.select(f.compare("oeq", x, zero), copysign(f, like(x, math.inf), negative(f, x)), result)


def _sin_pi(f: Function, x: Value) -> Value:
    """Emit sin(pi x), exactly 0 at the integers."""
    zero, one, magnitude = like(x, 0.0), like(x, 1.0), absolute(f, x)
    turns = f.intrinsic("floor", f.fmul(magnitude, like(x, 0.5)))
    part = f.fsub(magnitude, f.fadd(turns, turns))
    is_second = f.compare("ogt", part, one)
    folded = f.select(is_second, f.fsub(part, one), part)  # sin(pi (p + 1)) = -sin(pi p)
    angle = f.fmul(like(x, math.pi), minimum(f, folded, f.fsub(one, folded)))
    sine = f.fmul(angle, polynomial(f, f.fmul(angle, angle), _SINE))
    is_flipped = f.binary("xor", is_second, f.compare("olt", x, zero))
    return f.select(is_flipped, negative(f, sine), sine)


_LARGEST = 30.0  # erfc underflows to 0 beyond


def erf(f: Function, x: Value) -> Value:
    """Emit the error function to 1e-15."""
    magnitude, one = absolute(f, x), like(x, 1.0)
    large = copysign(f, f.fsub(one, _rest_of(f, magnitude)), x)
    return f.select(f.compare("olt", magnitude, one), _small(f, x), large)


def erfc(f: Function, x: Value) -> Value:
    """Emit 1 - erf(x) with relative error 1e-14."""
    magnitude, zero = absolute(f, x), like(x, 0.0)
    large = _rest_of(f, magnitude)
    large = f.select(f.compare("olt", x, zero), f.fsub(like(x, 2.0), large), large)
    small = f.fsub(like(x, 1.0), _small(f, x))
    return f.select(f.compare("olt", magnitude, like(x, 0.5)), small, large)


def ndtr(f: Function, x: Value) -> Value:
    """Emit the standard normal distribution function: erfc(-x / sqrt(2)) / 2."""
    return f.fmul(erfc(f, f.fmul(x, like(x, -math.sqrt(0.5)))), like(x, 0.5))


def erfinv(f: Function, y: Value) -> Value:
    """Emit the x with erf(x) = y to 1e-14, by a step of Halley's method; infinite at -1 and 1, NaN beyond."""
    magnitude, one = absolute(f, y), like(y, 1.0)
    x = near_erfinv(f, magnitude)
    is_small = f.compare("olt", magnitude, like(y, 0.5))
    gap = f.select(is_small, f.fsub(erf(f, x), magnitude), f.fsub(f.fsub(one, magnitude), _rest_of(f, x)))
    step = f.fmul(f.fmul(gap, like(y, math.sqrt(math.pi) / 2)), exp(f, f.fmul(x, x)))
    return with_ends(f, f.fsub(x, f.fdiv(step, f.fma(x, step, one))), y)


def near_erfinv(f: Function, y: Value) -> Value:
    """Emit the inverse of erf to 1e-8, for 0 <= y < 1."""
    one = like(y, 1.0)
    w = negative(f, log(f, f.fmul(f.fsub(one, y), f.fadd(one, y))))
    near = polynomial(f, f.fsub(f.fdiv(w, like(y, 2.5)), one), special.ERFINV)
    root = f.intrinsic("sqrt", w)
    far = polynomial(f, f.fsub(f.fmul(root, like(y, 0.5)), like(y, 2.1)), special.ERFINV_TAIL)
    return f.fmul(y, f.select(f.compare("ogt", w, like(y, 5.0)), far, near))


def with_ends(f: Function, x: Value, y: Value) -> Value:
    """Emit the inverse of erf from its value for |y|, with the ends of its domain."""
    magnitude, one = absolute(f, y), like(y, 1.0)
    x = f.select(f.compare("ogt", magnitude, one), like(y, math.nan), x)
    return copysign(f, f.select(f.compare("oeq", magnitude, one), like(y, math.inf), x), y)


def _small(f: Function, x: Value) -> Value:
    """Emit erf(x) for |x| <= 1."""
    square = f.fsub(f.fmul(f.fadd(x, x), x), like(x, 1.0))
    return f.fmul(polynomial(f, minimum(f, square, like(x, 1.0)), special.ERF), x)


def _rest_of(f: Function, x: Value) -> Value:
    """Emit 1 - erf(x) for x >= 0."""
    x = minimum(f, x, like(x, _LARGEST))
    lanes = lanes_of(x.type)
    # The square of a number with so few bits is exact, so the exponential of a large one stays accurate.
    bits = f.convert("bitcast", x, vector(lanes, "i64"))
    kept = integer(f, "and", bits, -(1 << 29))
    head = f.convert("bitcast", kept, x.type)
    rest = f.fmul(f.fsub(head, x), f.fadd(head, x))
    gauss = f.fmul(exp(f, f.fmul(negative(f, head), head)), exp(f, rest))
    ratio = f.fdiv(f.fsub(x, like(x, 3.75)), f.fadd(x, like(x, 3.75)))
    top = f.fmul(gauss, polynomial(f, ratio, special.ERFC))
    return f.fdiv(top, f.fma(x, like(x, 2.0), like(x, 1.0)))
