"""Hyperbolic sine and cosine, and the inverses of sinh, cosh and tanh.

Source: own minimax fit (tests/data/compiler/fit_math.py).
"""

from __future__ import annotations

from typing import Final

from engine.compiler.codegen.ir import Function, Value
from engine.compiler.kernels.functions.arithmetic import absolute, copysign, like, minimum, polynomial, sqrt
from engine.compiler.kernels.functions.exponential import exp_parts
from engine.compiler.kernels.functions.logarithm import log1p

# (sinh(x) - x) / x**3 in x**2 up to 1: 2.4e-8.
_SINH: Final = (0.00020372832659631968, 0.008330274373292923, 0.1666671633720398)
_LN2: Final = 0.6931471805599453
_SQUARES_OVERFLOW: Final = 2.0**60


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
