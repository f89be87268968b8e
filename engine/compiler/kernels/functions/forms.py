"""Formulas over a primitive: of vectors of float32 with its own, of float64 with its own. NaN stays NaN."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, TypeAlias

from engine.compiler.codegen.ir import Function, Value
from engine.compiler.kernels.functions.arithmetic import absolute, like, maximum, minimum

Primitive: TypeAlias = Callable[[Function, Value], Value]

# Of self-normalising networks.
_SELU_ALPHA: Final = 1.6732632423543772848170429916717
_SELU_SCALE: Final = 1.0507009873554804934193349852946


def gelu_tanh(f: Function, x: Value, one_plus_exp_minus: Primitive) -> Value:
    """x (1 + tanh(u)) / 2 with u = sqrt(2 / pi) (x + 0.044715 x**3), as x / (1 + e**-2u)."""
    factor = 2 * math.sqrt(2 / math.pi)
    cubic = f.fma(f.fmul(x, x), like(x, 0.044715 * factor), like(x, factor))
    return f.fdiv(x, one_plus_exp_minus(f, f.fmul(x, cubic)))


def elu(f: Function, x: Value, alpha: Value, expm1: Primitive) -> Value:
    """x where x > 0, else alpha * (e**x - 1)."""
    zero = like(x, 0.0)
    return f.fma(alpha, expm1(f, minimum(f, x, zero)), maximum(f, x, zero))


def celu(f: Function, x: Value, alpha: Value, expm1: Primitive) -> Value:
    """x where x > 0, else alpha * (e**(x / alpha) - 1)."""
    zero = like(x, 0.0)
    return f.fma(alpha, expm1(f, f.fdiv(minimum(f, x, zero), alpha)), maximum(f, x, zero))


def selu(f: Function, x: Value, expm1: Primitive) -> Value:
    """scale * (x where x > 0, else alpha * (e**x - 1))."""
    zero = like(x, 0.0)
    positive = f.fmul(like(x, _SELU_SCALE), maximum(f, x, zero))
    return f.fma(like(x, _SELU_SCALE * _SELU_ALPHA), expm1(f, minimum(f, x, zero)), positive)


def softplus(f: Function, x: Value, beta: Value, threshold: Value, log1p_exp_minus: Primitive) -> Value:
    """log(1 + e**(beta x)) / beta; x itself where beta * x > threshold."""
    is_one = beta == like(x, 1.0)
    scaled = x if is_one else f.fmul(x, beta)
    result = f.fadd(maximum(f, scaled, like(x, 0.0)), log1p_exp_minus(f, absolute(f, scaled)))
    result = result if is_one else f.fdiv(result, beta)
    return f.select(f.compare("ogt", scaled, threshold), x, result)


def logsigmoid(f: Function, x: Value, log1p_exp_minus: Primitive) -> Value:
    """log(1 / (1 + e**-x)) = min(x, 0) - log(1 + e**-|x|)."""
    return f.fsub(minimum(f, x, like(x, 0.0)), log1p_exp_minus(f, absolute(f, x)))


def logaddexp(f: Function, a: Value, b: Value, log1p_exp_minus: Primitive) -> Value:
    """log(e**a + e**b) without overflow."""
    # Equal infinities have no difference.
    gap = f.select(f.compare("oeq", a, b), like(a, 0.0), absolute(f, f.fsub(a, b)))
    return f.fadd(maximum(f, a, b), log1p_exp_minus(f, gap))


def xlogy(f: Function, x: Value, y: Value, log: Primitive) -> Value:
    """x log(y); 0 where x is 0 and y is a number."""
    zero = like(x, 0.0)
    is_zero = f.binary("and", f.compare("oeq", x, zero), f.compare("ord", y, y))
    return f.select(is_zero, zero, f.fmul(x, log(f, y)))


def logarithm_edges(f: Function, x: Value, result: Value) -> Value:
    """The logarithm of x where that is NaN or infinite, else the result."""
    zero, infinity = like(x, 0.0), like(x, math.inf)
    result = f.select(f.compare("olt", x, infinity), result, x)
    result = f.select(f.compare("oeq", x, zero), like(x, -math.inf), result)
    return f.select(f.compare("olt", x, zero), like(x, math.nan), result)
