"""Special functions of float32, computed in float64 and rounded once."""

from __future__ import annotations

from engine.compiler.codegen.ir import Function, Value
from engine.compiler.kernels.functions import double_special
from engine.compiler.kernels.functions.arithmetic import absolute, narrowed, widened


def erfc(f: Function, x: Value) -> Value:
    """Emit 1 - erf(x) within 1 ulp, without cancellation."""
    return narrowed(f, double_special.erfc(f, widened(f, x)))


def erfinv(f: Function, x: Value) -> Value:
    """Emit the y with erf(y) = x within 1 ulp; infinite at -1 and 1, NaN beyond."""
    wide = widened(f, x)
    return narrowed(f, double_special.with_ends(f, double_special.near_erfinv(f, absolute(f, wide)), wide))


def lgamma(f: Function, x: Value) -> Value:
    """Emit log(|gamma(x)|) within 1 ulp; infinite at 0 and the negative integers."""
    return narrowed(f, double_special.lgamma(f, widened(f, x)))


def digamma(f: Function, x: Value) -> Value:
    """Emit the derivative of lgamma within 1 ulp; infinite at 0, NaN at the negative integers."""
    return narrowed(f, double_special.digamma(f, widened(f, x)))


def i0(f: Function, x: Value) -> Value:
    """Emit the modified Bessel function of order 0 within 1 ulp."""
    return narrowed(f, double_special.i0(f, widened(f, x)))


def ndtr(f: Function, x: Value) -> Value:
    """Emit the standard normal distribution function within 1 ulp."""
    return narrowed(f, double_special.ndtr(f, widened(f, x)))
