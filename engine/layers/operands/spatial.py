"""Operands of layers that work on images, signals and volumes.

The spatial axes are the last ones: (C, *S) or, with a batch, (N, C, *S). Every check accepts the TensorSpec of infer()
as well as the array of forward(), so that both refuse the same operands with the same message.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.promotion import Category, dtype_category
from engine.tensor import Array, TensorSpec, dtype_name, format_shape

Operand: TypeAlias = TensorSpec | Array

FLOATING: Final = frozenset({Category.FLOATING})
REAL: Final = frozenset({Category.FLOATING, Category.INTEGER})
NUMERIC: Final = frozenset({*REAL, Category.COMPLEX})
LARGEST: Final = 2**31 - 1
"""Largest kernel, stride, padding and dilation; no axis is longer."""

ANY: Final = frozenset(Category)


def tensor(value: object, name: str = "input", categories: frozenset[Category] = ANY) -> TensorSpec:
    """Return the spec of an operand that must be a tensor of some category of dtypes.

    Raises:
        ShapeError: when it is not.
    """
    if not isinstance(value, (TensorSpec, np.ndarray)):
        raise ShapeError(f"operand '{name}' is not a tensor", found=repr(value))
    if dtype_category(value.dtype) not in categories:
        expected = " or ".join(sorted(category.name.lower() for category in categories))
        raise ShapeError(f"operand '{name}' has the wrong dtype", found=dtype_name(value.dtype), expected=expected)
    return TensorSpec(value.shape, value.dtype)


def image(value: object, spatial_rank: int, categories: frozenset[Category] = ANY) -> TensorSpec:
    """Return the spec of an input (C, *S) or (N, C, *S) with so many spatial axes.

    Raises:
        ShapeError: when it has another rank or dtype.
    """
    spec = tensor(value, "input", categories)
    if spec.rank not in (spatial_rank + 1, spatial_rank + 2):
        raise ShapeError(
            "input has the wrong number of dimensions",
            found=format_shape(spec.shape),
            expected=f"{spatial_rank + 1} or, with a batch, {spatial_rank + 2}",
        )
    return spec


def check_rank(spec: TensorSpec, *ranks: int, name: str = "input") -> None:
    """Refuse another number of dimensions than these.

    Raises:
        ShapeError: naming both.
    """
    if spec.rank not in ranks:
        raise ShapeError(
            f"{name} has the wrong number of dimensions",
            found=format_shape(spec.shape),
            expected=" or ".join(map(str, ranks)),
        )


def spread(values: tuple[int, ...], rank: int, name: str, least: int = 1) -> tuple[int, ...]:
    """Return one number an axis; a single one is repeated for every axis.

    Raises:
        ParameterError: for another count, or a number that is too small or larger than any axis.
    """
    full = values * rank if len(values) == 1 else values
    if len(full) != rank or not least <= min(full, default=least) <= max(full, default=least) <= LARGEST:
        numbers = f"{rank} numbers" if rank > 1 else "one number"
        expected = f"{numbers}, at least {least}" + (
            f" and at most {LARGEST}" if max(full, default=0) > LARGEST else ""
        )
        raise ParameterError(f"{name} does not fit", found=list(values), expected=expected)
    return full


def of_last_axes(*items: Any) -> tuple[Any, ...]:
    """Return an index of the last axes, one item each, and of all other axes as a whole."""
    return (..., *items)
