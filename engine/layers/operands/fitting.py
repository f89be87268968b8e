"""What is written into a tensor has to fit it, and what chooses places has to be a mask: as PyTorch checks it.

Categories of dtypes are held against each other, not dtypes themselves: the file of a half precision model says float32
of what its weights have in float16.
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
    """Refuse to write floats among integers, or the like.

    Raises:
        ShapeError: naming both dtypes.
    """
    if dtype_category(source) is not dtype_category(input):
        raise ShapeError("source is of another dtype", found=dtype_name(source), expected=dtype_name(input))


def check_shape(source: Shape, target: Shape, problem: str = "source does not fit") -> None:
    """Refuse a source that is not just as large as the place for it; nothing is broadcast.

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
    """Refuse a number that an integer dtype does not hold, as PyTorch does.

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
    """Refuse a mask that is none: PyTorch takes bools, and once took bytes.

    Raises:
        ShapeError: naming the dtype.
    """
    if mask.name not in ("bool", "uint8"):
        raise ShapeError("a mask must be of bools", found=dtype_name(mask), expected="bool")


def check_added_rank(*ranks: int) -> None:
    """Refuse what would end the process: a ufunc's ``at`` takes so many dimensions at most, and does not look.

    Args:
        ranks: of the array that is written to, and of what the index picks of it.

    Raises:
        ShapeError: for more.
    """
    if max(ranks) > ADDED_RANK:
        raise ShapeError("too many dimensions to add in", found=max(ranks), expected=f"at most {ADDED_RANK}")
