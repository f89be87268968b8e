"""Checks, like PyTorch's, of values written into a tensor, and of masks.

Categories of dtypes are compared, not dtypes: files of half precision models annotate float32 for float16 weights.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from engine.errors import ShapeError
from engine.layers.operands.axes import may_match
from engine.promotion import dtype_category
from engine.tensor import DType, Shape, TensorSpec, dtype_name, format_shape

ADDED_RANK: Final = 32


def check_category(source: DType, input: DType) -> None:
    """Refuse to write floats into integers, or the like.

    Raises:
        ShapeError: naming both dtypes.
    """
    if dtype_category(source) is not dtype_category(input):
        raise ShapeError("source has another kind of dtype", found=dtype_name(source), expected=dtype_name(input))


def check_shape(source: Shape, target: Shape, problem: str = "source does not fit") -> None:
    """Refuse a source of another shape than its target; nothing is broadcast.

    Raises:
        ShapeError: naming both shapes.
    """
    if not may_match(source, target):
        raise ShapeError(problem, found=format_shape(source), expected=format_shape(target))


def check_single(value: object) -> None:
    """Refuse a tensor with dimensions where a number is needed.

    Raises:
        ShapeError: naming its shape.
    """
    if isinstance(value, (np.ndarray, TensorSpec)) and value.shape:
        raise ShapeError("the value must be a single number", found=format_shape(value.shape), expected="[]")


def check_number(value: object, dtype: DType) -> None:
    """Refuse a number that an integer dtype cannot hold, like PyTorch.

    Raises:
        ShapeError: naming the number and the dtype.
    """
    if dtype.kind in "iu" and isinstance(value, (int, float)):
        bounds = np.iinfo(dtype)
        if not bounds.min <= value <= bounds.max:
            raise ShapeError(
                f"the value does not fit {dtype_name(dtype)}", found=value, expected=f"{bounds.min} to {bounds.max}"
            )


def check_mask(mask: DType) -> None:
    """Refuse a mask of other dtypes than bool and, as in older versions of PyTorch, uint8.

    Raises:
        ShapeError: naming the dtype.
    """
    if mask.name not in ("bool", "uint8"):
        raise ShapeError("a mask must be of bools", found=dtype_name(mask), expected="bool")


def check_added_rank(*ranks: int) -> None:
    """Refuse too many dimensions for a ufunc's ``at``, which does not check them and would crash the process.

    Args:
        ranks: of the array that is written to, and of the indexed part.

    Raises:
        ShapeError: a rank is too large.
    """
    if max(ranks) > ADDED_RANK:
        raise ShapeError(
            "too many dimensions for an addition at indices", found=max(ranks), expected=f"at most {ADDED_RANK}"
        )
