"""Table of all functions that an expression may call.

A row has the name, the number of arguments (two numbers for an optional last one), the evaluation of arguments, and
the description of the result: a TensorSpec, a known value, or the Category of a number unknown before a run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

import numpy as np

from engine.errors import ExpressionError
from engine.expression.elementwise import ELEMENTWISE, is_tensor
from engine.ir.dims import plain
from engine.ir.ratios import truncate
from engine.ir.sizes import has_sizes
from engine.promotion import Category, cast, dtype_category
from engine.tensor import BFLOAT16, UNKNOWN, Array, DType, Number, TensorSpec, parse_dtype


class Function(Protocol):
    """Interface of the rows of the table."""

    @property
    def name(self) -> str:
        """Name in expressions."""

    @property
    def arity(self) -> tuple[int, ...]:
        """Numbers of arguments it takes, ascending."""

    @property
    def evaluate(self) -> Callable[..., object]:
        """Function from the arguments to the value."""

    @property
    def infer(self) -> Callable[..., object]:
        """Function from what is known of the arguments before the run to what is known of the value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """``size(@k,d)``, the length of dimension d, or ``size(@k)``, the shape as a list."""

    name: str = "size"
    arity: tuple[int, ...] = (1, 2)

    def evaluate(self, tensor: object, dim: object = None) -> object:
        """Return the size, an int, or all sizes; -1 is the last dimension."""
        return self.infer(tensor, dim)

    def infer(self, tensor: object, dim: object = None) -> object:
        """Return like evaluate, with an unknown integer for a dynamic dimension.

        Raises:
            ExpressionError: for anything but a tensor, and for a dimension it does not have.
        """
        if tensor is UNKNOWN:
            return UNKNOWN if dim is None else Category.INTEGER
        if not isinstance(tensor, (np.ndarray, np.generic, TensorSpec)):
            raise ExpressionError("only tensors have a size", found=repr(tensor), expected="a tensor")
        sizes: list[object] = [Category.INTEGER if size is None else size for size in tensor.shape]
        return sizes if dim is None else self._one(sizes, dim)

    @staticmethod
    def _one(sizes: list[object], dim: object) -> object:
        if dim is UNKNOWN or isinstance(dim, Category):
            return Category.INTEGER
        if not isinstance(dim, int) or isinstance(dim, bool):
            raise ExpressionError("a dimension is not an integer", found=repr(dim), expected="an integer")
        if not -len(sizes) <= dim < len(sizes):
            raise ExpressionError(
                "the dimension is out of range", found=dim, expected=f"one of {len(sizes)} dimensions"
            )
        return sizes[dim]


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncate:
    """``int(x)``: one number as a Python int, rounded towards zero."""

    name: str = "int"
    arity: tuple[int, ...] = (1,)

    def evaluate(self, x: object) -> object:
        """Return a Python int.

        Raises:
            ExpressionError: for a tensor of several elements, and for numbers out of the range of 64-bit integers.
        """
        if isinstance(x, (np.ndarray, np.generic)):
            self._check_single(x.size)
            x = _item(np.asarray(x))
        if has_sizes(x):
            return truncate(x)
        if isinstance(x, int):
            return plain(x)
        if not isinstance(x, float) or not math.isfinite(x) or abs(x) >= 2.0**63:
            raise ExpressionError("the value cannot become an integer", found=repr(x), expected="a finite real number")
        return int(x)

    def infer(self, x: object) -> object:
        """Return the int, or an unknown integer."""
        if isinstance(x, TensorSpec):
            self._check_single(x.size)
        return Category.INTEGER if _is_unknown(x) else self.evaluate(x)

    @staticmethod
    def _check_single(size: int | None) -> None:
        if size not in (1, None):
            raise ExpressionError("only a single number becomes an int", found=f"{size} elements", expected="1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """``torch.float(x)`` and the like: a number rounded to a dtype, or a tensor in it.

    PyTorch makes a 0-dim tensor of the number. If that promotes like a number (float32, complex64) or is a size
    (integers, bool) it stays a number, so that shapes can be inferred before a run; else it becomes a 0-dim array.
    """

    name: str
    dtype: DType
    arity: tuple[int, ...] = (1,)

    def evaluate(self, x: object) -> object:
        """Return an array for an array; for a number a number or a 0-dim array."""
        if has_sizes(x) and self.dtype == np.int64 and not is_tensor(x):
            return truncate(x)
        if not is_tensor(x) and not isinstance(x, (int, float, complex)):
            raise ExpressionError("the value cannot be cast", found=repr(x), expected="a tensor or a number")
        array = cast(x, self.dtype)  # type: ignore[arg-type]
        return array if is_tensor(x) or not self.keeps_numbers else _item(array)

    def infer(self, x: object) -> object:
        """Return a TensorSpec for an array, the number, or the category of an unknown number."""
        if x is UNKNOWN:
            return UNKNOWN
        if isinstance(x, TensorSpec):
            return TensorSpec(x.shape, self.dtype)
        if not self.keeps_numbers:
            return TensorSpec((), self.dtype)
        return dtype_category(self.dtype) if _is_unknown(x) else self.evaluate(x)

    @property
    def keeps_numbers(self) -> bool:
        return self.dtype.kind in "biu" or self.dtype in (np.float32, np.complex64)


def _is_unknown(x: object) -> bool:
    return x is UNKNOWN or isinstance(x, (Category, TensorSpec))


def _item(array: Array) -> Number:
    """Return the one element as a Python number; item() of bfloat16 is not one."""
    number: Number = (array.astype(np.float32) if array.dtype == BFLOAT16 else array).item()
    return number


_CAST_NAMES: Final = (
    "float", "float32", "double", "float64", "half", "float16", "bfloat16", "uint8", "int8", "short", "int16", "int",
    "int32", "long", "int64", "bool", "complex32", "complex64", "cfloat", "complex128", "cdouble",
)  # fmt: skip
_CASTS: Final = {f"torch.{name}": Cast(name=f"torch.{name}", dtype=parse_dtype(name)) for name in _CAST_NAMES}

FUNCTIONS: Final[Mapping[str, Function]] = MappingProxyType(
    {**ELEMENTWISE, "size": Size(), "int": Truncate(), **_CASTS}
)
"""Every function by name."""
