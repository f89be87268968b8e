"""Smooth activations: sigmoid, tanh, the error function and functions made of them.

NaN stays NaN; a zero may lose its sign. The formulas are those of engine.layers.elementwise.activation.

Source: own minimax polynomial and rational (tests/data/compiler/fit_math.py).
"""

from __future__ import annotations

from typing import Final

from engine.compiler.codegen.ir import Function, Value
from engine.compiler.kernels.functions.arithmetic import (
    absolute,
    between,
    copysign,
    like,
    minimum,
    negative,
    polynomial,
)
from engine.compiler.kernels.functions.exponential import exp_parts, expm1_down, expm1_parts
from engine.compiler.kernels.functions.logarithm import log, log1p_exp_minus
from engine.compiler.kernels.functions.smooth import Smooth

# -log(1 - erf(x)) / x for x from 0 to 3.93, highest power first; beyond, erf rounds to 1 in float32.
_ERF: Final = (3.671232479973696e-05, -0.00035516812931746244, 0.0011884733103215694, 0.0002797242777887732,
               -0.019364453852176666, 0.10282572358846664, 0.6366153955459595, 1.128379225730896)  # fmt: skip
_ERF_BOUND: Final = 3.93
# erf(x / sqrt(2)) = x P(x * x) / Q(x * x); at the bound the quotient is 1 to the bit.
_NORMAL_P: Final = (4.784669727087021e-08, 1.3359871445572935e-05, 0.0003550784313119948, 0.009837283752858639,
                    0.07119949162006378, 0.8390598893165588)  # fmt: skip
_NORMAL_Q: Final = (1.259302507605753e-06, 7.744852337054908e-05, 0.0019817000720649958, 0.030124226585030556,
                    0.2645021677017212, 1.0516058206558228)  # fmt: skip
_NORMAL_BOUND: Final = 5.222293376922607


def tanh_parts(f: Function, x: Value) -> tuple[Value, Value]:
    """Emit numerator and denominator of tanh(x), so that divisions can be combined; neither exceeds 1e8."""
    twice = between(f, f.fadd(x, x), -18.0, 18.0)
    power, above = expm1_parts(f, twice, doublings=0)
    e = f.fma(power.scale, power.mantissa, above)
    return e, f.fadd(e, like(x, 2.0))


def erf(f: Function, x: Value) -> Value:
    """Emit the error function within 3.2 ulp: 1 - e**-t with a polynomial for t."""
    magnitude = minimum(f, absolute(f, x), like(x, _ERF_BOUND))
    exponent = f.fmul(negative(f, magnitude), polynomial(f, magnitude, _ERF))
    power, above = expm1_parts(f, exponent, doublings=0)
    return copysign(f, f.fma(power.scale, power.mantissa, above), x)


def gelu(f: Function, x: Value) -> Value:
    """Emit x (1 + erf(x / sqrt(2))) / 2 within 2.5e-7 |x|; NaN for -inf, as in PyTorch."""
    half = f.fmul(x, like(x, 0.5))
    held = between(f, x, -_NORMAL_BOUND, _NORMAL_BOUND)
    z = f.fmul(held, held)
    erf = f.fdiv(f.fmul(held, polynomial(f, z, _NORMAL_P)), polynomial(f, z, _NORMAL_Q))
    return f.fma(half, erf, half)


def mish(f: Function, x: Value) -> Value:
    """Emit x tanh(log(1 + e**x)) = x p / (p + 2), p = e (e + 2), e = e**x, within 4.5 ulp for normal e**x."""
    power = exp_parts(f, between(f, x, -104.0, 20.0), doublings=-24)
    e = f.fmul(power.mantissa, power.scale)
    p = f.fmul(e, f.fadd(e, like(x, 2.0)))
    return f.fmul(x, f.fdiv(p, f.fadd(p, like(x, 2.0))))


def softsign(f: Function, x: Value) -> Value:
    """Emit x / (1 + |x|) within 1.5 ulp."""
    return f.fdiv(x, f.fadd(like(x, 1.0), absolute(f, x)))


def one_plus_exp_minus(f: Function, x: Value) -> Value:
    """Emit 1 + e**-x, the reciprocal of sigmoid(x)."""
    power = exp_parts(f, between(f, x, -89.0, 87.0), doublings=1, negated=True)
    return f.fma(power.mantissa, power.scale, like(x, 1.0))


FLOATS: Final = Smooth(
    log=log,
    expm1_down=expm1_down,
    log1p_exp_minus=log1p_exp_minus,
    one_plus_exp_minus=one_plus_exp_minus,
    tanh_parts=tanh_parts,
)
"""Smooth functions of float32."""
