"""Element-wise functions of float32 vectors by name, written out in arithmetic every processor has.

Each takes the function being emitted and its argument vectors. NaN and infinity behave as in PyTorch. The docstring of
an approximated function states its largest error in units of the last place (ulp).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from engine.compiler.codegen.ir import Function, Value
from engine.compiler.kernels.functions import (
    activation,
    arithmetic,
    comparison,
    double_special,
    exponential,
    half,
    logarithm,
    rounding,
    trigonometric,
)
from engine.compiler.kernels.functions.arithmetic import absolute, to_double, to_float


def erfc(f: Function, x: Value) -> Value:
    """Emit 1 - erf(x) within 1 ulp, without cancellation."""
    return to_float(f, double_special.erfc(f, to_double(f, x)))


def erfinv(f: Function, x: Value) -> Value:
    """Emit the y with erf(y) = x within 1 ulp; infinite at -1 and 1, NaN beyond."""
    double = to_double(f, x)
    return to_float(f, double_special.with_ends(f, double_special.near_erfinv(f, absolute(f, double)), double))


def lgamma(f: Function, x: Value) -> Value:
    """Emit log(|gamma(x)|) within 1 ulp; infinite at 0 and the negative integers."""
    return to_float(f, double_special.lgamma(f, to_double(f, x)))


_OF_BOTH: tuple[Callable[..., Value], ...] = (
    Function.fma,
    arithmetic.square, arithmetic.cube, arithmetic.sqrt, arithmetic.rsqrt, arithmetic.reciprocal, arithmetic.copysign,
    arithmetic.clip,
    rounding.frac, rounding.sign,
    comparison.isnan, comparison.signbit, comparison.where, comparison.heaviside,
    activation.relu, activation.relu6, activation.leaky_relu, activation.hardsigmoid, activation.hardswish,
    activation.threshold, activation.hardshrink, activation.softshrink, activation.softsign,
    exponential.exp, exponential.exp2, exponential.expm1,
)  # fmt: skip
SHARED: dict[str, Callable[..., Value]] = {
    **{each.__name__: each for each in _OF_BOTH},
    "add": Function.fadd,
    "sub": Function.fsub,
    "mul": Function.fmul,
    "div": Function.fdiv,
    "neg": arithmetic.negative,
    "abs": arithmetic.absolute,
    "max": arithmetic.maximum,
    "min": arithmetic.minimum,
    "addcmul": arithmetic.scaled_sum,
    "addcdiv": arithmetic.scaled_quotient,
    "lerp": arithmetic.interpolate,
    "prelu": activation.leaky_relu,
    **{name: rounding.rounded(way) for name, way in rounding.WAYS.items()},
    **{name: comparison.comparison(how) for name, how in comparison.COMPARISONS.items()},
    **{f"logical_{name}": comparison.logic(name) for name in ("and", "or", "xor")},
    "logical_not": comparison.comparison_with("oeq", 0.0),
    "isinf": comparison.comparison_with("oeq", math.inf, of_magnitude=True),
    "isfinite": comparison.comparison_with("olt", math.inf, of_magnitude=True),
    "isposinf": comparison.comparison_with("oeq", math.inf),
    "isneginf": comparison.comparison_with("oeq", -math.inf),
}
"""Functions of float32 and float64 vectors."""
_OF_FLOATS: tuple[Callable[..., Value], ...] = (
    arithmetic.whole_sum, arithmetic.shifted_sum,
    rounding.code, rounding.limit, rounding.quotient, rounding.fmod, rounding.remainder, rounding.floor_divide,
    exponential.exp_down, exponential.exp2_down, exponential.exp_or_zero,
    logarithm.log, logarithm.log2, logarithm.log10, logarithm.log1p,
    logarithm.hypot,
    trigonometric.sin, trigonometric.cos, trigonometric.tan, trigonometric.asin, trigonometric.acos,
    trigonometric.atan, trigonometric.atan2,
    trigonometric.sinh, trigonometric.cosh, trigonometric.asinh, trigonometric.acosh, trigonometric.atanh,
    activation.erf, activation.gelu, activation.mish,
    erfc, erfinv, lgamma,
    half.round_float16, half.round_bfloat16,
)  # fmt: skip
FUNCTIONS: dict[str, Callable[..., Value]] = {
    **SHARED,
    **{each.__name__: each for each in _OF_FLOATS},
    **activation.FLOATS.by_name,
    "fmax": arithmetic.larger_number,
    "fmin": arithmetic.smaller_number,
    "pow": logarithm.power,
}

# Vector instructions of a call with AVX-512; a division counts as six, a square root as eight, unlisted ones as one.
COSTS = {
    "div": 6, "sqrt": 8, "rsqrt": 14, "reciprocal": 6, "cube": 2, "max": 3, "min": 3, "fmax": 3, "fmin": 3, "clip": 2,
    "limit": 2, "code": 3, "quotient": 3,
    "addcmul": 3, "addcdiv": 8, "lerp": 8, "frac": 2, "sign": 4, "fmod": 37, "remainder": 42, "floor_divide": 63,
    "logical_and": 2, "logical_or": 2, "logical_xor": 2, "isnan": 2, "isinf": 2, "isfinite": 2, "heaviside": 4,
    "relu6": 2, "leaky_relu": 3, "prelu": 3, "hardsigmoid": 4, "hardswish": 5, "threshold": 2, "hardshrink": 3,
    "softshrink": 7, "exp": 20, "exp2": 19, "exp_down": 16, "exp_or_zero": 16, "exp2_down": 12, "expm1": 21,
    "log": 32, "log2": 31,
    "log10": 33, "log1p": 34, "logaddexp": 44, "xlogy": 36, "softplus": 40, "logsigmoid": 38, "pow": 114, "hypot": 36,
    "sin": 43, "cos": 41, "tan": 50, "asin": 27, "acos": 29, "atan": 29, "atan2": 36, "sinh": 34, "cosh": 24,
    "asinh": 58, "acosh": 52, "atanh": 45, "sigmoid": 21, "silu": 22, "tanh": 26, "erf": 29, "gelu": 25,
    "gelu_tanh": 26, "mish": 27, "elu": 20, "celu": 26, "selu": 21, "softsign": 8, "tanhshrink": 27,
    "erfc": 180, "erfinv": 150, "lgamma": 300,
    "round_float16": 13, "round_bfloat16": 7,
}  # fmt: skip
