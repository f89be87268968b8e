"""Comparisons, in the common dtype of both operands, and tests of single elements; the results are bools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from engine.errors import ShapeError
from engine.expression.elementwise import with_lists
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.operands.precision import check_ordered
from engine.promotion import broadcast_shapes, cast, result_type
from engine.tensor import Array, DType, Number, TensorSpec, dtype_name

BOOL: Final[DType] = np.dtype(np.bool_)
_FLOAT32: Final[DType] = np.dtype(np.float32)


class Comparison(Layer):
    """Two operands compared element by element; lists are vectors of the other's dtype."""

    takes_sizes = True

    function: str

    def infer(self, input: TensorSpec | Number | list[Number], other: TensorSpec | Number | list[Number]) -> TensorSpec:
        x, y = with_lists((input, other))
        self._dtype(x, y)
        shapes = [each.shape for each in (x, y) if isinstance(each, (TensorSpec, np.ndarray))]
        return TensorSpec(broadcast_shapes(*shapes), BOOL)

    def forward(self, input: Array | Number | list[Number], other: Array | Number | list[Number]) -> Array:
        operands: tuple[Any, ...] = with_lists((input, other))
        x, y = operands
        dtype = self._dtype(x, y)
        with np.errstate(all="ignore"):
            return np.asarray(_COMPARISONS[self.function](cast(x, dtype), cast(y, dtype)))

    def _dtype(self, input: object, other: object) -> DType:
        dtype = result_type(input, other)
        if self.function not in ("eq", "ne"):
            check_ordered(dtype)
        return dtype


_COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip


class Predicate(Layer):
    """A test of every element."""

    function: str

    def infer(self, input: TensorSpec) -> TensorSpec:
        if input.dtype.kind == "c" and self.function in _OF_REAL_NUMBERS:
            raise ShapeError("complex numbers have no sign", found=dtype_name(input.dtype), expected="a real dtype")
        return TensorSpec(input.shape, BOOL)

    def forward(self, input: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(_TESTS[self.function](input), BOOL)


def _is_pos_inf(x: Array) -> Any:
    return _without_infinities(x, np.isposinf)


def _is_neg_inf(x: Array) -> Any:
    return _without_infinities(x, np.isneginf)


def _without_infinities(x: Array, test: Callable[[Any], Any]) -> Any:
    """Return the test of every element; integers have no infinities, and numpy needs float32 at least."""
    return np.zeros(x.shape, BOOL) if x.dtype.kind in "biu" else test(cast(x, np.promote_types(x.dtype, _FLOAT32)))


def _is_negative(x: Array) -> Any:
    return x < 0 if x.dtype.kind in "biu" else np.signbit(x)


_OF_REAL_NUMBERS: Final = ("isposinf", "isneginf", "signbit")
_TESTS: Final[dict[str, Callable[[Array], Any]]] = {
    "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite, "isposinf": _is_pos_inf, "isneginf": _is_neg_inf,
    "isreal": np.isreal, "logical_not": lambda x: x == 0, "signbit": _is_negative,
}  # fmt: skip
_FORMULAS: Final = {
    "eq": "x == y", "ne": "x != y", "lt": "x < y", "le": "x <= y", "gt": "x > y", "ge": "x >= y",
    "isnan": "whether x is NaN", "isinf": "whether x is infinite",
    "isfinite": "whether x is neither NaN nor infinite", "isposinf": "whether x is inf",
    "isneginf": "whether x is -inf", "isreal": "whether x has no imaginary part", "logical_not": "whether x is zero",
    "signbit": "whether x has a minus sign, as -0.0 has",
}  # fmt: skip

for _function, _formula in _FORMULAS.items():
    _layer: type[Layer] = Comparison if _function in _COMPARISONS else Predicate
    register(f"torch.{_function}", presets={"function": _function}, formula=_formula)(_layer)


@register("torch.isclose", positional=("input", "other", "rtol", "atol", "equal_nan"))
class IsClose(Layer):
    """|x - y| <= atol + rtol * |y|; equal infinities are close, NaNs only with equal_nan."""

    rtol: float = 1e-5
    atol: float = 1e-8
    equal_nan: bool = False

    def infer(self, input: TensorSpec, other: TensorSpec) -> TensorSpec:
        if input.dtype != other.dtype:
            raise ShapeError("dtypes differ", found=f"{input.dtype} and {other.dtype}", expected="equal ones")
        return TensorSpec(broadcast_shapes(input.shape, other.shape), BOOL)

    def forward(self, input: Array, other: Array) -> Array:
        x, y = (cast(each, np.promote_types(each.dtype, _FLOAT32)) for each in (input, other))
        with np.errstate(all="ignore"):
            allowed = x.real.dtype.type(self.atol) + np.abs(x.real.dtype.type(self.rtol) * y)
            close = (input == other) | (np.isfinite(x - y) & (np.abs(x - y) <= allowed))
        return np.asarray(close | (np.isnan(x) & np.isnan(y)) if self.equal_nan else close)
