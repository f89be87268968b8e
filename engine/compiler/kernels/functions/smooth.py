"""Smooth functions for float32 and float64, built on primitives of each type. NaN stays NaN.

The formulas are those of engine.layers.elementwise.activation. Errors are in units of the last place (ulp).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from engine.compiler.codegen.ir import Function, Value
from engine.compiler.kernels.functions.arithmetic import absolute, like, maximum, minimum

Primitive: TypeAlias = Callable[[Function, Value], Value]

# Constants of self-normalising networks.
_SELU_ALPHA: Final = 1.6732632423543772848170429916717
_SELU_SCALE: Final = 1.0507009873554804934193349852946


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


_NAMES: Final = (
    "sigmoid", "silu", "tanh", "tanhshrink", "gelu_tanh", "elu", "celu", "selu",
    "softplus", "logsigmoid", "logaddexp", "xlogy",
)  # fmt: skip
