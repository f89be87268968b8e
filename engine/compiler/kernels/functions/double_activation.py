"""Smooth activations of float64. NaN stays NaN; the formulas are those of engine.layers.elementwise.activation."""

from __future__ import annotations

import math
from typing import Final

from engine.compiler.codegen.ir import Function, Value
from engine.compiler.kernels.functions.activation import Smooth
from engine.compiler.kernels.functions.arithmetic import between, like, negative
from engine.compiler.kernels.functions.double_logarithm import log, log1p_exp_minus
from engine.compiler.kernels.functions.double_special import erf
from engine.compiler.kernels.functions.exponential import exp, expm1


def tanh_parts(f: Function, x: Value) -> tuple[Value, Value]:
    """Emit numerator and denominator of tanh(x), so that divisions can be combined; neither exceeds 2e19."""
    e = expm1(f, between(f, f.fadd(x, x), -44.0, 44.0))
    return e, f.fadd(e, like(x, 2.0))


def gelu(f: Function, x: Value) -> Value:
    """Emit x (1 + erf(x / sqrt(2))) / 2; NaN for -inf, as in PyTorch."""
    half = f.fmul(x, like(x, 0.5))
    return f.fmul(half, f.fadd(like(x, 1.0), erf(f, f.fmul(x, like(x, math.sqrt(0.5))))))


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
