"""Element-wise mathematics that expressions do not have."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from engine.expression.elementwise import ElementwiseFunction
from engine.layers.creation.container import formula
from engine.layers.definition.composite import CallLayer, Composite
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.elementwise.base import Elementwise
from engine.layers.elementwise.functions import REAL, Binary, Unary, define
from engine.layers.operands.precision import check_ordered, working_dtype
from engine.promotion import Category, broadcast_shapes, cast, dtype_category, result_type
from engine.special import digamma, erfc, erfinv, lgamma
from engine.tensor import Array, DType, Number, TensorSpec

_FRACTIONAL: Final = frozenset({Category.FLOATING})
_INTEGRAL: Final = frozenset({Category.INTEGER})
_NUMBERS: Final = frozenset(Category) - {Category.BOOL}


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


# name, compute, categories it computes in, whether integers become floats, formula
_UNARY: Final[tuple[tuple[str, Any, frozenset[Category], bool, str], ...]] = (
    ("positive", lambda x: x, _NUMBERS, False, "x"),
    ("frac", lambda x: x - np.trunc(x), _FRACTIONAL, False, "x - trunc(x)"),
    ("log2", np.log2, frozenset(Category), True, "log(x) / log(2)"),
    ("exp2", _exp2, frozenset(Category), True, "2 ** x"),
    ("erfc", erfc, REAL, True, "1 - erf(x)"),
    ("erfinv", erfinv, REAL, True, "the y with erf(y) = x"),
    ("lgamma", lgamma, REAL, True, "log(|gamma(x)|)"),
    ("digamma", digamma, REAL, True, "the derivative of lgamma(x)"),
    ("sinc", _sinc, frozenset(Category), True, "sin(pi x) / (pi x), 1 at 0"),
    ("deg2rad", lambda x: x * x.dtype.type(math.pi / 180), REAL, True, "x pi / 180"),
    ("rad2deg", lambda x: x * x.dtype.type(180 / math.pi), REAL, True, "x 180 / pi"),
    (
        "i0",
        lambda x: np.i0(x.reshape(-1)).astype(x.dtype).reshape(x.shape),
        REAL,
        True,
        "the modified Bessel function of order 0",
    ),
    ("special_entr", _entropy, REAL, True, "-x log(x), 0 at 0, -inf below"),
    ("special_ndtr", _normal_cdf, REAL, True, "the distribution function of the standard normal"),
)
_BINARY: Final[tuple[tuple[str, Any, frozenset[Category], bool, str], ...]] = (
    ("hypot", np.hypot, _FRACTIONAL, False, "sqrt(x * x + y * y)"),
    ("copysign", np.copysign, REAL, True, "|x| with the sign of y"),
    ("logaddexp2", np.logaddexp2, _FRACTIONAL, False, "log2(2 ** x + 2 ** y)"),
    ("xlogy", _xlogy, REAL, True, "x log(y), 0 where x is 0"),
    ("special_xlog1py", _xlog1py, REAL, True, "x log(1 + y), 0 where x is 0"),
    ("heaviside", _heaviside, REAL, False, "0 below zero, 1 above, y at zero"),
    ("ldexp", _ldexp, frozenset(Category), True, "x * 2 ** y"),
    ("gcd", np.gcd, _INTEGRAL, False, "the greatest common divisor"),
    ("lcm", np.lcm, _INTEGRAL, False, "the least common multiple"),
    ("fmax", np.fmax, REAL, False, "the larger of both; the other if one is NaN"),
    ("fmin", np.fmin, REAL, False, "the smaller of both; the other if one is NaN"),
)

for _base, _rows in ((Unary, _UNARY), (Binary, _BINARY)):
    for _name, _compute, _accepts, _is_floating, _formula in _rows:
        _function = ElementwiseFunction(
            name=_name,
            arity=(1 if _base is Unary else 2,),
            compute=_compute,
            accepts=_accepts,
            is_floating=_is_floating,
        )
        define(_base, f"torch.{_name}", _function, _formula)


@register("aten::float_power")
class FloatPower(Layer):
    """x ** y in float64, complex128 for complex numbers."""

    def infer(self, input: TensorSpec | Number, exponent: TensorSpec | Number) -> TensorSpec:
        shapes = [each.shape for each in (input, exponent) if isinstance(each, TensorSpec)]
        return TensorSpec(broadcast_shapes(*shapes), _double(input, exponent))

    def forward(self, input: Array | Number, exponent: Array | Number) -> Array:
        dtype = _double(input, exponent)
        broadcast_shapes(np.shape(input), np.shape(exponent))
        with np.errstate(all="ignore"):
            return np.asarray(np.power(cast(input, dtype), cast(exponent, dtype)))


def _double(*operands: object) -> DType:
    is_complex = dtype_category(result_type(*operands)) is Category.COMPLEX
    return np.dtype(np.complex128 if is_complex else np.float64)


@register("torch.logit")
class Logit(Composite):
    """log(x / (1 - x)), with x first clipped to eps to 1 - eps if eps is given."""

    eps: float | None = None

    def compose(self, call: CallLayer, input: Array) -> Any:
        check_ordered(input.dtype)
        clipped = "@0" if self.eps is None else f"min(max(@0,{self.eps}),{1 - self.eps})"
        return formula(call, f"log(div({clipped},sub(1,{clipped})))", input)


@register("torch.nan_to_num")
class NanToNum(Elementwise):
    """x with NaN and the infinities replaced: by 0 and the largest and smallest finite numbers unless given."""

    nan: float | None = None
    posinf: float | None = None
    neginf: float | None = None

    def forward(self, input: Array) -> Array:
        if dtype_category(input.dtype) is not Category.FLOATING:
            return input
        largest = float(np.finfo(input.dtype).max) if input.dtype.kind == "f" else _LARGEST_BFLOAT16
        replacements = (
            (np.isnan(input), 0.0 if self.nan is None else self.nan),
            (np.isposinf(cast(input, np.dtype(np.float64))), largest if self.posinf is None else self.posinf),
            (np.isneginf(cast(input, np.dtype(np.float64))), -largest if self.neginf is None else self.neginf),
        )
        result = input.copy()
        for places, value in replacements:
            result[places] = cast(value, input.dtype)
        return result


_LARGEST_BFLOAT16: Final = 3.3895313892515355e38


@register("torch.frexp")
class FrExp(Layer):
    """The m in 0.5 to 1 and the integer e with x = m * 2 ** e."""

    def infer(self, input: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
        check_ordered(input.dtype)
        return input, TensorSpec(input.shape, np.dtype(np.int32))

    def forward(self, input: Array) -> tuple[Array, Array]:
        check_ordered(input.dtype)
        mantissa, exponent = np.frexp(cast(input, working_dtype(input.dtype)))
        return cast(np.asarray(mantissa), input.dtype), np.asarray(exponent, np.int32)
