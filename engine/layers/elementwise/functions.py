"""Functions of single elements, from tables of names, formulas and their computation in numpy.

Operands are converted to the dtype of PyTorch's promotion. float16 and bfloat16 are computed in float32 and rounded;
functions with fractional values convert integers to float32. Functions of expressions come from their table.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from engine.expression.elementwise import ELEMENTWISE, ElementwiseFunction
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.operands.bounds import at_least, at_most
from engine.promotion import Category
from engine.special import digamma, erfc, erfinv, lgamma
from engine.tensor import Array, Number, TensorSpec

Numbers: TypeAlias = Number | list[Number]
_REAL: Final = frozenset(Category) - {Category.COMPLEX}
_FRACTIONAL: Final = frozenset({Category.FLOATING})
_INTEGRAL: Final = frozenset({Category.INTEGER})
_NUMBERS: Final = frozenset(Category) - {Category.BOOL}


class Unary(Layer):
    """A function of every element."""

    takes_sizes = True

    function: str

    def infer(self, input: TensorSpec) -> object:
        return DEFINITIONS[self.function].infer(input)

    def forward(self, input: Array) -> object:
        with np.errstate(all="ignore"):
            return DEFINITIONS[self.function].evaluate(input)


class Binary(Layer):
    """A function of every pair of elements, the operands broadcast, lists as vectors."""

    takes_sizes = True

    function: str

    def infer(self, input: TensorSpec | Numbers, other: TensorSpec | Numbers) -> object:
        return DEFINITIONS[self.function].infer(input, other)

    def forward(self, input: Array | Numbers, other: Array | Numbers) -> object:
        with np.errstate(all="ignore"):
            return DEFINITIONS[self.function].evaluate(input, other)


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _log_sigmoid(x: Array) -> Array:
    return at_most(x, 0) - np.log1p(np.exp(-np.abs(x)))


def _selu(x: Array) -> Array:
    alpha, scale = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
    return scale * at_least(x, 0) + (scale * alpha) * np.expm1(at_most(x, 0))


def _angle(x: Array) -> Array:
    if x.dtype.kind == "c":
        return np.asarray(np.angle(x))
    return np.where(np.isnan(x), x, np.where(x < 0, np.pi, 0).astype(x.dtype))


def _direction(x: Array) -> Array:
    if x.dtype.kind != "c":
        return ((x > 0).astype(np.int8) - (x < 0).astype(np.int8)).astype(x.dtype)
    length, result = np.abs(x), np.empty(x.shape, x.dtype)
    result.real, result.imag = (np.where(length == 0, 0, part / length) for part in (x.real, x.imag))
    return result


def _sinc(x: Array) -> Array:
    scaled = x * x.dtype.type(math.pi)
    return np.asarray(np.where(x == 0, 1, np.sin(scaled) / scaled), x.dtype)


def _entropy(x: Array) -> Array:
    inside = -x * np.log(x)
    return np.asarray(np.where(x > 0, inside, np.where(x == 0, 0, np.where(x < 0, -np.inf, x))), x.dtype)


def _normal_cdf(x: Array) -> Array:
    return np.asarray(erfc(-x / x.dtype.type(math.sqrt(2))) / x.dtype.type(2))


def _xlogy(x: Array, y: Array) -> Array:
    return np.where((x == 0) & ~np.isnan(y), np.zeros((), x.dtype), x * np.log(y))


def _xlog1py(x: Array, y: Array) -> Array:
    return np.where((x == 0) & ~np.isnan(y), np.zeros((), x.dtype), x * np.log1p(y))


def _heaviside(x: Array, values: Array) -> Array:
    return np.where(x == 0, values, (x > 0).astype(x.dtype))


def _exp2(x: Array) -> Array:
    return np.asarray(np.power(x.dtype.type(2), x) if x.dtype.kind == "c" else np.exp2(x))


def _ldexp(x: Array, exponent: Array) -> Array:
    return np.asarray(x * _exp2(exponent))


def _bessel(x: Array) -> Array:
    return np.i0(x.reshape(-1)).astype(x.dtype).reshape(x.shape)


def _row(
    arity: int,
    name: str,
    formula: str,
    compute: Callable[..., Any],
    accepts: frozenset[Category] = frozenset(Category),
    **rules: bool,
) -> tuple[ElementwiseFunction, str]:
    return ElementwiseFunction(name=name, arity=(arity,), compute=compute, accepts=accepts, **rules), formula


_unary: Final = partial(_row, 1)
_binary: Final = partial(_row, 2)
_smooth: Final = partial(_row, 1, is_floating=True)

_EXPRESSIONS: Final = {
    "abs": "|x|, real for complex numbers", "neg": "-x", "sign": "-1, 0 or 1; 0 for NaN", "square": "x * x",
    "ceil": "x rounded up", "floor": "x rounded down", "round": "x rounded to the nearest, halves to even",
    "trunc": "x rounded towards zero", "sqrt": "square root of x", "rsqrt": "1 / sqrt(x)", "reciprocal": "1 / x",
    "exp": "exp(x)", "expm1": "exp(x) - 1", "log": "log(x)", "log10": "log(x) / log(10)", "log1p": "log(1 + x)",
    "erf": "the error function", "sin": "sin(x)", "cos": "cos(x)", "tan": "tan(x)", "asin": "arc sine of x",
    "acos": "arc cosine of x", "atan": "arc tangent of x", "sinh": "sinh(x)", "cosh": "cosh(x)", "tanh": "tanh(x)",
    "asinh": "inverse of sinh", "acosh": "inverse of cosh", "atanh": "inverse of tanh",
    "remainder": "x % y: what is left of x / y rounded down; it has the sign of y",
    "fmod": "what is left of x / y rounded towards zero; it has the sign of x",
    "floor_divide": "x / y rounded down", "pow": "x ** y", "mul": "x * y", "atan2": "the angle of the point (y, x)",
    "logaddexp": "log(exp(x) + exp(y))", "maximum": "the larger of both; NaN if one is NaN",
    "minimum": "the smaller of both; NaN if one is NaN", "and": "bits set in both; logical and of bools",
    "or": "bits set in either; logical or of bools", "xor": "bits set in one of both; logical xor of bools",
    "lshift": "x * 2 ** y", "rshift": "x / 2 ** y, rounded down",
}  # fmt: skip
_BITWISE: Final = {
    "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift",
}  # fmt: skip

_ROWS: Final = (
    *((ELEMENTWISE[name], formula) for name, formula in _EXPRESSIONS.items()),
    _smooth("sigmoid", "1 / (1 + exp(-x))", _sigmoid),
    _smooth("silu", "x / (1 + exp(-x))", lambda x: x / (1 + np.exp(-x))),
    _smooth("logsigmoid", "log(1 / (1 + exp(-x))), computed without overflow as min(x, 0) - log1p(exp(-|x|))",
            _log_sigmoid),
    _smooth("softsign", "x / (1 + |x|)", lambda x: x / (1 + np.abs(x))),
    _smooth("mish", "x * tanh(log(1 + exp(x)))", lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    _smooth("selu", "scale * (x where x > 0, else alpha * (exp(x) - 1)), with the constants of the self-normalising "
            "network", _selu),
    _smooth("hardsigmoid", "min(max(x + 3, 0), 6) / 6", lambda x: np.clip(x + 3, 0, 6) / 6),
    _smooth("hardswish", "x * min(max(x + 3, 0), 6) / 6", lambda x: x * np.clip(x + 3, 0, 6) / 6),
    _unary("positive", "x", lambda x: x, _NUMBERS),
    _unary("frac", "x - trunc(x)", lambda x: x - np.trunc(x), _FRACTIONAL),
    _smooth("angle", "the angle of a complex number; of a real one 0, pi where it is negative", _angle,
            is_magnitude=True),
    _unary("sgn", "x / |x|, each part divided, 0 at 0: the sign of a real number, 0 for NaN", _direction),
    _smooth("log2", "log(x) / log(2)", np.log2),
    _smooth("exp2", "2 ** x", _exp2),
    _smooth("erfc", "1 - erf(x)", erfc, _REAL),
    _smooth("erfinv", "the y with erf(y) = x", erfinv, _REAL),
    _smooth("lgamma", "log(|gamma(x)|)", lgamma, _REAL),
    _smooth("digamma", "the derivative of lgamma(x)", digamma, _REAL),
    _smooth("sinc", "sin(pi x) / (pi x), 1 at 0", _sinc),
    _smooth("deg2rad", "x pi / 180", lambda x: x * x.dtype.type(math.pi / 180), _REAL),
    _smooth("rad2deg", "x 180 / pi", lambda x: x * x.dtype.type(180 / math.pi), _REAL),
    _smooth("i0", "the modified Bessel function of order 0", _bessel, _REAL),
    _smooth("special_entr", "-x log(x), 0 at 0, -inf below", _entropy, _REAL),
    _smooth("special_ndtr", "the distribution function of the standard normal", _normal_cdf, _REAL),
    _binary("hypot", "sqrt(x * x + y * y)", np.hypot, _FRACTIONAL),
    _binary("copysign", "|x| with the sign of y", np.copysign, _REAL, is_floating=True),
    _binary("logaddexp2", "log2(2 ** x + 2 ** y)", np.logaddexp2, _FRACTIONAL),
    _binary("xlogy", "x log(y), 0 where x is 0", _xlogy, _REAL, is_floating=True),
    _binary("special_xlog1py", "x log(1 + y), 0 where x is 0", _xlog1py, _REAL, is_floating=True),
    _binary("heaviside", "0 below zero, 1 above, y at zero", _heaviside, _REAL),
    _binary("ldexp", "x * 2 ** y", _ldexp, is_floating=True),
    _binary("gcd", "the greatest common divisor", np.gcd, _INTEGRAL),
    _binary("lcm", "the least common multiple", np.lcm, _INTEGRAL),
    _binary("fmax", "the larger of both; the other if one is NaN", np.fmax, _REAL),
    _binary("fmin", "the smaller of both; the other if one is NaN", np.fmin, _REAL),
)  # fmt: skip
_ACTIVATIONS: Final = (
    "sigmoid", "silu", "logsigmoid", "softsign", "mish", "selu", "hardsigmoid", "hardswish",
)  # fmt: skip

DEFINITIONS: Final[dict[str, ElementwiseFunction]] = {definition.name: definition for definition, _ in _ROWS}
"""How each function promotes, computes and infers."""

for _definition, _formula in _ROWS:
    _name = _definition.name
    _type = f"F.{_name}" if _name in _ACTIVATIONS else f"torch.{_BITWISE.get(_name, _name)}"
    _layer: type[Layer] = Unary if _definition.arity == (1,) else Binary
    register(_type, presets={"function": _name}, formula=_formula)(_layer)
