"""Smooth activations. NaN stays NaN; the formulas are engine.layers.elementwise.activation's."""

from __future__ import annotations

import math
from typing import Final

from engine.compiler.codegen.ir import Function, Value
from engine.compiler.kernels.functions import forms
from engine.compiler.kernels.functions.arithmetic import absolute, between, copysign, like, maximum, minimum, negative
from engine.compiler.kernels.functions.doubles.exponential import exp, expm1
from engine.compiler.kernels.functions.doubles.logarithm import log1p_exp_minus
from engine.compiler.kernels.functions.doubles.normal import erf

_LARGE: Final = 40.0  # from here on sinh and cosh are the same


def sigmoid(f: Function, x: Value) -> Value:
    """1 / (1 + e**-x) within 3 ulp; 0 below -709.8, where e**-x overflows, as in PyTorch."""
    return f.fdiv(like(x, 1.0), one_plus_exp_minus(f, x))


def silu(f: Function, x: Value) -> Value:
    """x / (1 + e**-x) within 3 ulp; NaN for -inf, as in PyTorch."""
    return f.fdiv(x, one_plus_exp_minus(f, x))


def tanh(f: Function, x: Value) -> Value:
    """tanh(x) = e / (e + 2), e = e**2x - 1, within 3 ulp."""
    return f.fdiv(*tanh_parts(f, x))


def tanh_parts(f: Function, x: Value) -> tuple[Value, Value]:
    """tanh(x) as numerator and denominator, that other divisions may be joined to; neither is beyond 2e19."""
    e = expm1(f, between(f, f.fadd(x, x), -44.0, 44.0))
    return e, f.fadd(e, like(x, 2.0))


def gelu(f: Function, x: Value) -> Value:
    """x (1 + erf(x / sqrt(2))) / 2; NaN for -inf, as in PyTorch."""
    half = f.fmul(x, like(x, 0.5))
    return f.fmul(half, f.fadd(like(x, 1.0), erf(f, f.fmul(x, like(x, math.sqrt(0.5))))))


def gelu_tanh(f: Function, x: Value) -> Value:
    """x (1 + tanh(u)) / 2 with u = sqrt(2 / pi) (x + 0.044715 x**3), as x / (1 + e**-2u)."""
    return forms.gelu_tanh(f, x, one_plus_exp_minus)


def mish(f: Function, x: Value) -> Value:
    """x tanh(log(1 + e**x))"""
    return f.fmul(x, tanh(f, f.fadd(maximum(f, x, like(x, 0.0)), log1p_exp_minus(f, absolute(f, x)))))


def elu(f: Function, x: Value, alpha: Value) -> Value:
    """x where x > 0, else alpha * (e**x - 1), within 2 ulp."""
    return forms.elu(f, x, alpha, expm1)


def celu(f: Function, x: Value, alpha: Value) -> Value:
    """x where x > 0, else alpha * (e**(x / alpha) - 1), within 2 ulp once x / alpha is rounded."""
    return forms.celu(f, x, alpha, expm1)


def selu(f: Function, x: Value) -> Value:
    """scale * (x where x > 0, else alpha * (e**x - 1)) within 2 ulp, constants as in self-normalising networks."""
    return forms.selu(f, x, expm1)


def tanhshrink(f: Function, x: Value) -> Value:
    """x - tanh(x), as exact as the difference is."""
    return f.fsub(x, tanh(f, x))


def sinh(f: Function, x: Value) -> Value:
    """sinh(x) = (e + e / (e + 1)) / 2, e = e**|x| - 1, within 3 ulp; infinite where it exceeds float64."""
    magnitude = absolute(f, x)
    e = expm1(f, minimum(f, magnitude, like(x, _LARGE)))
    small = f.fmul(f.fadd(e, f.fdiv(e, f.fadd(e, like(x, 1.0)))), like(x, 0.5))
    return copysign(f, f.select(f.compare("ogt", magnitude, like(x, _LARGE)), _half_exp(f, magnitude), small), x)


def cosh(f: Function, x: Value) -> Value:
    """cosh(x) within 3 ulp; infinite where it exceeds float64."""
    half = _half_exp(f, absolute(f, x))
    return f.fadd(half, f.fdiv(like(x, 0.25), half))


def _half_exp(f: Function, x: Value) -> Value:
    """e**x / 2 for x >= 0, from the square of its root: that is infinite no sooner than the result."""
    root = exp(f, f.fmul(x, like(x, 0.5)))
    return f.fmul(f.fmul(root, like(x, 0.5)), root)


def one_plus_exp_minus(f: Function, x: Value) -> Value:
    """1 + e**-x, which sigmoid(x) is the reciprocal of."""
    return f.fadd(like(x, 1.0), exp(f, negative(f, x)))
