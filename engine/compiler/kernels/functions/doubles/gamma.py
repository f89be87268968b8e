"""Logarithm of gamma and its derivative: Stirling's series for large numbers, recurrence for others.

The formulas are those of engine.special.
"""

from __future__ import annotations

import math
from typing import Final

from engine import special
from engine.compiler.codegen.ir import Function, Value
from engine.compiler.kernels.functions.arithmetic import (
    absolute,
    copysign,
    like,
    maximum,
    minimum,
    negative,
    polynomial,
)
from engine.compiler.kernels.functions.doubles.logarithm import log

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
    is_turned = f.binary("xor", is_second, f.compare("olt", x, zero))
    return f.select(is_turned, negative(f, sine), sine)
