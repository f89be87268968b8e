"""Special functions of float64: error function, its complement and inverse, log-gamma.

The formulas are those of engine.special, in the same order: Stirling's series for gamma of large numbers, recurrence
for others.
"""

from __future__ import annotations

import math
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
