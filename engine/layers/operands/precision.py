"""Dtypes that layers compute in.

PyTorch on a CPU computes half precision (float16, bfloat16) in float32 and rounds the result once; integers that
meet a function with fractional values become float32.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from engine.errors import ShapeError
from engine.promotion import Category, cast, dtype_category, float_dtype, is_reduced
from engine.tensor import Array, DType, dtype_name

INT64: Final[DType] = np.dtype(np.int64)
_FLOAT32: Final[DType] = np.dtype(np.float32)


def working_dtype(dtype: DType) -> DType:
    """Return the dtype for sums and products of this dtype: float32 for half precision, else itself."""
    return _FLOAT32 if is_reduced(dtype) else dtype


def widened(input: Array) -> Array:
    """Return a floating or complex array to compute with; integers and half precision become float32."""
    return cast(input, working_dtype(float_dtype(input.dtype)))


def summed_dtype(dtype: DType) -> DType:
    """Return the dtype of sums: int64 for integers and bools, else the dtype itself."""
    return INT64 if dtype_category(dtype) in (Category.BOOL, Category.INTEGER) else dtype


def check_ordered(dtype: DType) -> None:
    """Refuse numbers without an order.

    Raises:
        ShapeError: for a complex dtype.
    """
    if dtype.kind == "c":
        raise ShapeError("complex numbers have no order", found=dtype_name(dtype), expected="a real dtype")
