"""Activations: piecewise linear ones, and smooth ones such as sigmoid, tanh and gelu; and the error function.

``Smooth`` builds the smooth functions of float32 and float64 on primitives of each type. NaN stays NaN; a zero may lose
its sign. The formulas are those of engine.layers.elementwise.activation. Errors are in units of the last place (ulp).

Source: own minimax polynomial and rational (tests/data/compiler/fit_math.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from engine.compiler.codegen.ir import Function, Value
from engine.compiler.kernels.functions.arithmetic import (
    absolute,
    between,
    copysign,
    like,
    maximum,
    minimum,
    negative,
    polynomial,
)
from engine.compiler.kernels.functions.exponential import exp_parts, expm1_down, expm1_parts
from engine.compiler.kernels.functions.logarithm import log, log1p_exp_minus

Primitive: TypeAlias = Callable[[Function, Value], Value]

# Constants of self-normalising networks.
_SELU_ALPHA: Final = 1.6732632423543772848170429916717
_SELU_SCALE: Final = 1.0507009873554804934193349852946
_NAMES: Final = (
    "sigmoid", "silu", "tanh", "tanhshrink", "gelu_tanh", "elu", "celu", "selu",
    "softplus", "logsigmoid", "logaddexp", "xlogy",
)  # fmt: skip
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Smooth:
    """Smooth functions of a type.

    Args:
        log: logarithm.
        expm1_down: e**x - 1 for x <= 0.
        log1p_exp_minus: log(1 + e**-x) for x >= 0.
        one_plus_exp_minus: 1 + e**-x, the reciprocal of sigmoid(x).
        tanh_parts: numerator and denominator of tanh(x), so that divisions can be combined.
    """

    log: Primitive
    expm1_down: Primitive
    log1p_exp_minus: Primitive
    one_plus_exp_minus: Primitive
    tanh_parts: Callable[[Function, Value], tuple[Value, Value]]

    @property
    def by_name(self) -> Mapping[str, Callable[..., Value]]:
        """Return all functions by name."""
        return {name: getattr(self, name) for name in _NAMES}

    def sigmoid(self, f: Function, x: Value) -> Value:
        """Emit 1 / (1 + e**-x) within 3 ulp; 0 where e**-x overflows, as in PyTorch."""
        return f.fdiv(like(x, 1.0), self.one_plus_exp_minus(f, x))

    def silu(self, f: Function, x: Value) -> Value:
        """Emit x / (1 + e**-x) within 3 ulp; NaN for -inf, as in PyTorch."""
        return f.fdiv(x, self.one_plus_exp_minus(f, x))

    def tanh(self, f: Function, x: Value) -> Value:
        """Emit the hyperbolic tangent e / (e + 2), e = e**2x - 1, within 3 ulp."""
        return f.fdiv(*self.tanh_parts(f, x))

    def tanhshrink(self, f: Function, x: Value) -> Value:
        """Emit x - tanh(x), as exact as the difference."""
        return f.fsub(x, self.tanh(f, x))

    def gelu_tanh(self, f: Function, x: Value) -> Value:
        """Emit x (1 + tanh(u)) / 2 with u = sqrt(2 / pi) (x + 0.044715 x**3), as x / (1 + e**-2u), within 2e-7 |x|."""
        factor = 2 * math.sqrt(2 / math.pi)
        cubic = f.fma(f.fmul(x, x), like(x, 0.044715 * factor), like(x, factor))
        return f.fdiv(x, self.one_plus_exp_minus(f, f.fmul(x, cubic)))

    def elu(self, f: Function, x: Value, alpha: Value) -> Value:
        """Emit x where x > 0, else alpha * (e**x - 1), within 2 ulp."""
        zero = like(x, 0.0)
        return f.fma(alpha, self.expm1_down(f, minimum(f, x, zero)), maximum(f, x, zero))

    def celu(self, f: Function, x: Value, alpha: Value) -> Value:
        """Emit x where x > 0, else alpha * (e**(x / alpha) - 1), within 2 ulp once x / alpha is rounded."""
        zero = like(x, 0.0)
        return f.fma(alpha, self.expm1_down(f, f.fdiv(minimum(f, x, zero), alpha)), maximum(f, x, zero))

    def selu(self, f: Function, x: Value) -> Value:
        """Emit scale * (x where x > 0, else alpha * (e**x - 1)) within 2 ulp."""
        zero = like(x, 0.0)
        positive = f.fmul(like(x, _SELU_SCALE), maximum(f, x, zero))
        return f.fma(like(x, _SELU_SCALE * _SELU_ALPHA), self.expm1_down(f, minimum(f, x, zero)), positive)

    def softplus(self, f: Function, x: Value, beta: Value, threshold: Value) -> Value:
        """Emit log(1 + e**(beta x)) / beta within 2.5 ulp once beta * x is rounded; x where beta * x > threshold."""
        is_one = beta == like(x, 1.0)
        scaled = x if is_one else f.fmul(x, beta)
        result = f.fadd(maximum(f, scaled, like(x, 0.0)), self.log1p_exp_minus(f, absolute(f, scaled)))
        result = result if is_one else f.fdiv(result, beta)
        return f.select(f.compare("ogt", scaled, threshold), x, result)

    def logsigmoid(self, f: Function, x: Value) -> Value:
        """Emit log(1 / (1 + e**-x)) = min(x, 0) - log(1 + e**-|x|) within 2 ulp."""
        return f.fsub(minimum(f, x, like(x, 0.0)), self.log1p_exp_minus(f, absolute(f, x)))

    def logaddexp(self, f: Function, a: Value, b: Value) -> Value:
        """Emit log(e**a + e**b) without overflow."""
        # Equal infinities have no difference.
        gap = f.select(f.compare("oeq", a, b), like(a, 0.0), absolute(f, f.fsub(a, b)))
        return f.fadd(maximum(f, a, b), self.log1p_exp_minus(f, gap))

    def xlogy(self, f: Function, x: Value, y: Value) -> Value:
        """Emit x log(y); 0 where x is 0 and y is a number."""
        zero = like(x, 0.0)
        is_zero = f.binary("and", f.compare("oeq", x, zero), f.compare("ord", y, y))
        return f.select(is_zero, zero, f.fmul(x, self.log(f, y)))


def relu(f: Function, x: Value) -> Value:
    """Emit max(x, 0); NaN stays NaN."""
    return maximum(f, x, like(x, 0.0))


def relu6(f: Function, x: Value) -> Value:
    """Emit min(max(x, 0), 6)."""
    return between(f, x, 0.0, 6.0)


def leaky_relu(f: Function, x: Value, slope: Value) -> Value:
    """Emit x where x > 0, else slope * x."""
    return f.select(f.compare("ogt", x, like(x, 0.0)), x, f.fmul(x, slope))


def hardsigmoid(f: Function, x: Value) -> Value:
    """Emit min(max(x + 3, 0), 6) / 6 within 1.5 ulp."""
    return f.fmul(_gate(f, x), like(x, 1 / 6))


def hardswish(f: Function, x: Value) -> Value:
    """Emit x * min(max(x + 3, 0), 6) / 6 within 2.5 ulp, from left to right: the product overflows in PyTorch, too."""
    return f.fmul(f.fmul(x, _gate(f, x)), like(x, 1 / 6))


def _gate(f: Function, x: Value) -> Value:
    """Emit min(max(x + 3, 0), 6)."""
    return between(f, f.fadd(x, like(x, 3.0)), 0.0, 6.0)


def threshold(f: Function, x: Value, limit: Value, value: Value) -> Value:
    """Emit x where x > limit (or is NaN), else value."""
    return f.select(f.compare("ole", x, limit), value, x)


def hardshrink(f: Function, x: Value, width: Value) -> Value:
    """Emit 0 where |x| <= width, else x."""
    return f.select(f.compare("ole", absolute(f, x), width), like(x, 0.0), x)


def softshrink(f: Function, x: Value, width: Value) -> Value:
    """Emit x moved towards 0 by width; 0 where it would cross 0."""
    zero = like(x, 0.0)
    moved = f.select(f.compare("ogt", x, zero), f.fsub(x, width), f.fadd(x, width))
    # Times 0, not 0: NaN must stay NaN.
    return f.select(f.compare("ogt", absolute(f, x), width), moved, f.fmul(x, zero))


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
