"""Logic on elements as truth values, and on their bits."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from engine.errors import ShapeError
from engine.expression.elementwise import with_lists
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.elementwise.base import Elementwise
from engine.layers.elementwise.comparison import BOOL
from engine.layers.elementwise.functions import Numbers
from engine.promotion import broadcast_shapes, category
from engine.tensor import Array, TensorSpec, dtype_name


class Logical(Layer):
    """Two operands combined as truth values: nonzero is true, NaN included."""

    function: str

    def infer(self, input: TensorSpec | Numbers, other: TensorSpec | Numbers) -> TensorSpec:
        operands = _numeric(with_lists((input, other)))
        shapes = [each.shape for each in operands if isinstance(each, (TensorSpec, np.ndarray))]
        return TensorSpec(broadcast_shapes(*shapes), BOOL)

    def forward(self, input: Array | Numbers, other: Array | Numbers) -> Array:
        x, y = _numeric(with_lists((input, other)))
        return np.asarray(getattr(np, self.function)(_truth(x), _truth(y)))


def _numeric(operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the operands.

    Raises:
        ShapeError: an operand is not of a numeric dtype.
    """
    for each in operands:
        category(each)
    return operands


def _truth(value: Any) -> Any:
    """Return whether each element is nonzero; bools unchanged, as comparing them with 0 is slow."""
    return value if isinstance(value, bool) or getattr(value, "dtype", None) == BOOL else np.not_equal(value, 0)


_FORMULAS: Final = {"logical_and": "x and y", "logical_or": "x or y", "logical_xor": "either x or y"}

for _function, _formula in _FORMULAS.items():
    register(f"torch.{_function}", presets={"function": _function}, formula=_formula)(Logical)


@register("torch.bitwise_not")
class BitwiseNot(Elementwise):
    """All bits inverted; logical not of bools."""

    def infer(self, input: TensorSpec, *others: object) -> TensorSpec:
        if input.dtype.kind not in "biu":
            raise ShapeError("only integers and bools have bits", found=dtype_name(input.dtype))
        return input

    def forward(self, input: Array) -> Array:
        return np.asarray(np.invert(input))
