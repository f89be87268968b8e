"""Smooth activations of float64. NaN stays NaN; the formulas are those of engine.layers.elementwise.activation."""

from __future__ import annotations

import math
from typing import Final

from engine.compiler.codegen.ir import Function, Value
from engine.compiler.kernels.functions.activation import Smooth
from engine.compiler.kernels.functions.arithmetic import absolute, between, copysign, like, maximum, minimum, negative
from engine.compiler.kernels.functions.double_logarithm import log, log1p_exp_minus
from engine.compiler.kernels.functions.double_special import erf
from engine.compiler.kernels.functions.exponential import exp, expm1

_LARGE: Final = 40.0  # sinh and cosh are equal from here on


def tanh_parts(f: Function, x: Value) -> tuple[Value, Value]:
    """Emit numerator and denominator of tanh(x), so that divisions can be combined; neither exceeds 2e19."""
    e = expm1(f, between(f, f.fadd(x, x), -44.0, 44.0))
    return e, f.fadd(e, like(x, 2.0))


def gelu(f: Function, x: Value) -> Value:
    """Emit x (1 + erf(x / sqrt(2))) / 2; NaN for -inf, as in PyTorch."""
    half = f.fmul(x, like(x, 0.5))
    return f.fmul(half, f.fadd(like(x, 1.0), erf(f, f.fmul(x, like(x, math.sqrt(0.5))))))


def mish(f: Function, x: Value) -> Value:
    """Emit x tanh(log(1 + e**x))."""
    return f.fmul(x, DOUBLES.tanh(f, f.fadd(maximum(f, x, like(x, 0.0)), log1p_exp_minus(f, absolute(f, x)))))


def sinh(f: Function, x: Value) -> Value:
    """Emit sinh as (e + e / (e + 1)) / 2, e = e**|x| - 1, within 3 ulp; infinite where it exceeds float64."""
    magnitude = absolute(f, x)
    e = expm1(f, minimum(f, magnitude, like(x, _LARGE)))
    small = f.fmul(f.fadd(e, f.fdiv(e, f.fadd(e, like(x, 1.0)))), like(x, 0.5))
    return copysign(f, f.select(f.compare("ogt", magnitude, like(x, _LARGE)), _half_exp(f, magnitude), small), x)


def cosh(f: Function, x: Value) -> Value:
    """Emit the hyperbolic cosine within 3 ulp; infinite where it exceeds float64."""
    half = _half_exp(f, absolute(f, x))
    return f.fadd(half, f.fdiv(like(x, 0.25), half))


def _half_exp(f: Function, x: Value) -> Value:
    """Emit e**x / 2 for x >= 0 as the square of a root, which overflows no sooner than the result."""
    root = exp(f, f.fmul(x, like(x, 0.5)))
    return f.fmul(f.fmul(root, like(x, 0.5)), root)


def one_plus_exp_minus(f: Function, x: Value) -> Value:
    """Emit 1 + e**-x, the reciprocal of sigmoid(x)."""
    return f.fadd(like(x, 1.0), exp(f, negative(f, x)))


DOUBLES: Final = Smooth(
    log=log,
    expm1_down=expm1,
    log1p_exp_minus=log1p_exp_minus,
    one_plus_exp_minus=one_plus_exp_minus,
    tanh_parts=tanh_parts,
)
"""Smooth functions of float64."""
