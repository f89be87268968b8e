"""Functions of single elements as layers, from tables of names, formulas and their computation in numpy.

Operands are converted to the dtype of PyTorch's promotion. float16 and bfloat16 are computed in float32 and rounded;
functions with fractional values convert integers to float32. Functions of expressions come from their table.
"""

from __future__ import annotations

from typing import ClassVar, Final, TypeAlias

import numpy as np

from engine.expression.elementwise import ELEMENTWISE, ElementwiseFunction
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.promotion import Category
from engine.tensor import Array, Number, TensorSpec

Numbers: TypeAlias = Number | list[Number]
REAL: Final = frozenset(Category) - {Category.COMPLEX}


class Unary(Layer):
    """Base of layers that compute a function of every element."""

    takes_sizes = True
    function: ClassVar[ElementwiseFunction]

    def infer(self, input: TensorSpec) -> object:
        return self.function.infer(input)

    def forward(self, input: Array) -> object:
        with np.errstate(all="ignore"):
            return self.function.evaluate(input)


class Binary(Layer):
    """Base of layers that compute a function of every pair of elements, the operands broadcast, lists as vectors."""

    takes_sizes = True
    function: ClassVar[ElementwiseFunction]

    def infer(self, input: TensorSpec | Numbers, other: TensorSpec | Numbers) -> object:
        return self.function.infer(input, other)

    def forward(self, input: Array | Numbers, other: Array | Numbers) -> object:
        with np.errstate(all="ignore"):
            return self.function.evaluate(input, other)


FUNCTIONS: Final[dict[str, type[Layer]]] = {}
"""The layers of functions, by name."""


def define(base: type[Layer], type_: str, function: ElementwiseFunction, formula: str) -> None:
    """Make and register the layer of a function.

    Args:
        base: Unary or Binary.
        type_: the PNNX type it serves.
        function: promotes, computes and infers.
        formula: its formula, for the documentation.
    """
    name = "".join(part.capitalize() for part in function.name.split("_"))
    layer = type(name, (base,), {"function": function, "__doc__": formula, "__module__": __name__})
    FUNCTIONS[function.name] = layer
    register(type_)(layer)


_FORMULAS: Final = {
    "abs": "|x|, real for complex numbers", "neg": "-x", "sign": "-1, 0 or 1; 0 for NaN", "square": "x * x",
    "ceil": "x rounded up", "floor": "x rounded down", "round": "x rounded to the nearest, halves to even",
    "trunc": "x rounded towards zero", "sqrt": "square root of x", "rsqrt": "1 / sqrt(x)", "reciprocal": "1 / x",
    "exp": "exp(x)", "expm1": "exp(x) - 1", "log": "log(x)", "log10": "log(x) / log(10)", "log1p": "log(1 + x)",
    "erf": "the error function", "sin": "sin(x)", "cos": "cos(x)", "tan": "tan(x)", "asin": "arc sine of x",
    "acos": "arc cosine of x", "atan": "arc tangent of x", "sinh": "sinh(x)", "cosh": "cosh(x)", "tanh": "tanh(x)",
    "asinh": "inverse of sinh", "acosh": "inverse of cosh", "atanh": "inverse of tanh",
}  # fmt: skip

for _name, _formula in _FORMULAS.items():
    define(Unary, f"torch.{_name}", ELEMENTWISE[_name], _formula)

_PAIR_FORMULAS: Final = {
    "remainder": "x % y: what is left of x / y rounded down; it has the sign of y",
    "fmod": "what is left of x / y rounded towards zero; it has the sign of x",
    "floor_divide": "x / y rounded down",
    "pow": "x ** y",
    "atan2": "the angle of the point (y, x)",
    "logaddexp": "log(exp(x) + exp(y))",
    "maximum": "the larger of both; NaN if one is NaN",
    "minimum": "the smaller of both; NaN if one is NaN",
}

for _name, _formula in _PAIR_FORMULAS.items():
    define(Binary, f"torch.{_name}", ELEMENTWISE[_name], _formula)
