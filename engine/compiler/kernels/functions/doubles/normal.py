"""Error function, its complement and its inverse: the formulas of engine.special, in the same order."""

from __future__ import annotations

import math

from engine import special
from engine.compiler.codegen.ir import Function, Value, lanes_of, vector
from engine.compiler.kernels.functions.arithmetic import (
    absolute,
    copysign,
    integer,
    like,
    minimum,
    negative,
    polynomial,
)
from engine.compiler.kernels.functions.doubles.logarithm import log
from engine.compiler.kernels.functions.exponential import exp

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
