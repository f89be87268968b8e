"""The element-wise functions of float32 vectors by name, written out in arithmetic every processor has.

Each takes the function being written and its argument vectors. NaN and infinity behave as in PyTorch; the largest error
of an approximated function is in its docstring, in units of the last place (ulp).
"""

from __future__ import annotations

from collections.abc import Callable

from engine.compiler.ir import Function, Value
from engine.compiler.kernels import activation, arithmetic, exponential, pieces

FUNCTIONS: dict[str, Callable[..., Value]] = {
    "add": Function.fadd,
    "sub": Function.fsub,
    "mul": Function.fmul,
    "div": Function.fdiv,
    "fma": Function.fma,
    "neg": arithmetic.negative,
    "abs": arithmetic.absolute,
    "square": arithmetic.square,
    "cube": arithmetic.cube,
    "sqrt": arithmetic.sqrt,
    "rsqrt": arithmetic.rsqrt,
    "reciprocal": arithmetic.reciprocal,
    "copysign": arithmetic.copysign,
    "max": arithmetic.maximum,
    "min": arithmetic.minimum,
    "fmax": arithmetic.larger_number,
    "fmin": arithmetic.smaller_number,
    "clip": arithmetic.clip,
    "addcmul": arithmetic.scaled_sum,
    "addcdiv": arithmetic.scaled_quotient,
    "lerp": arithmetic.interpolate,
    "relu": pieces.relu,
    "relu6": pieces.relu6,
    "leaky_relu": pieces.leaky_relu,
    "prelu": pieces.leaky_relu,
    "hardsigmoid": pieces.hardsigmoid,
    "hardswish": pieces.hardswish,
    "threshold": pieces.threshold,
    "hardshrink": pieces.hardshrink,
    "softshrink": pieces.softshrink,
    "exp": exponential.exp,
    "exp2": exponential.exp2,
    "exp_down": exponential.exp_down,
    "expm1": exponential.expm1,
    "sigmoid": activation.sigmoid,
    "silu": activation.silu,
    "tanh": activation.tanh,
    "erf": activation.erf,
    "gelu": activation.gelu,
    "gelu_tanh": activation.gelu_tanh,
    "mish": activation.mish,
    "elu": activation.elu,
    "celu": activation.celu,
    "selu": activation.selu,
    "softsign": activation.softsign,
    "tanhshrink": activation.tanhshrink,
}

# Vector instructions a call costs, roughly, a division counted as six; one where not listed.
COSTS = {
    "div": 6, "sqrt": 8, "rsqrt": 14, "reciprocal": 6, "max": 3, "min": 3, "clip": 2, "fmax": 5, "fmin": 5,
    "addcmul": 3, "addcdiv": 8, "lerp": 8, "leaky_relu": 3, "prelu": 3, "relu6": 2, "cube": 2, "threshold": 2,
    "hardshrink": 3, "softshrink": 7, "hardsigmoid": 4, "hardswish": 5, "exp": 18, "exp2": 17, "exp_down": 14,
    "expm1": 17, "sigmoid": 20, "silu": 20, "tanh": 24, "erf": 21, "gelu": 22, "gelu_tanh": 23, "mish": 24,
    "elu": 18, "celu": 24, "selu": 19, "softsign": 8, "tanhshrink": 25,
}  # fmt: skip
