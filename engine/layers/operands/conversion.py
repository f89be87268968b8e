"""Conversion of values to any dtype, also those of ONNX that PyTorch's graphs do not have: text and small floats."""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np

from engine.errors import ShapeError
from engine.ir.sizes import holds_sizes, specialise_sizes
from engine.promotion import cast
from engine.tensor import BFLOAT16, Array, DType, Number

STRING: Final[DType] = np.dtype(np.object_)
"""Strings, as Python objects."""

SATURATING: Final[frozenset[DType]] = frozenset(
    np.dtype(kind)
    for kind in (
        *(ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz),
        *(ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz),
    )
)
_EXPONENTS: Final[DType] = np.dtype(ml_dtypes.float8_e8m0fnu)


def converted(value: Array | Number, dtype: DType, saturate: bool = True, round_mode: str = "up") -> Array:
    """Convert a value to another dtype.

    Args:
        saturate: clamp out-of-range values of 8-bit floats to the largest; else they become infinite or NaN.
        round_mode: rounding to powers of two (float8_e8m0): up, down or nearest.
    """
    array = np.asarray(value)
    if holds_sizes(array):
        array = cast(array, dtype) if dtype.kind in "if" else specialise_sizes(array)
        if dtype.kind in "if":
            return array
    if array.dtype == dtype:
        return array
    if dtype == STRING:
        return _as_text(array)
    if array.dtype == STRING:
        return _from_text(array, dtype)
    if dtype in SATURATING:
        wide = array.astype(np.float32)
        limits = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
        with np.errstate(all="ignore"):
            return np.asarray((np.clip(wide, float(limits.min), float(limits.max)) if saturate else wide).astype(dtype))
    if dtype == _EXPONENTS:
        return _powers(array.astype(np.float32), saturate, round_mode)
    if array.dtype.kind == "V" or dtype.kind == "V" and dtype != BFLOAT16:
        with np.errstate(all="ignore"):
            return np.asarray(array.astype(dtype))
    return cast(array, dtype)


def _as_text(array: Array) -> Array:
    """Convert numbers to strings."""
    texts = np.empty(array.shape, STRING)
    texts.reshape(-1)[:] = [str(each) for each in array.reshape(-1)]
    return texts


def _from_text(array: Array, dtype: DType) -> Array:
    """Convert strings to numbers.

    Raises:
        ShapeError: a string is no number.
    """
    try:
        numbers: list[Any] = [float(each) if dtype.kind != "i" else int(each) for each in array.reshape(-1)]
    except (ValueError, TypeError) as error:  # TypeError: an optional value that is absent
        raise ShapeError("a text is not a number", found=str(error)[:80]) from None
    return np.array(numbers, np.float64 if dtype.kind != "i" else np.int64).astype(dtype).reshape(array.shape)


def _powers(x: Array, saturate: bool, round_mode: str) -> Array:
    """Round numbers to powers of two and return their biased exponents; 255 is NaN."""
    bits = x.view(np.uint32) if x.ndim else x.reshape(1).view(np.uint32).reshape(())
    exponent = ((bits >> 23) & 0xFF).astype(np.int32)
    rest, is_special = bits & 0x7FFFFF, exponent == 0xFF
    if round_mode == "nearest":
        up = (rest > 0x400000) | ((rest == 0x400000) & (exponent > 0))
    elif round_mode == "up":
        up = rest > 0
    else:
        up = np.zeros_like(rest, np.bool_)
    up = up & ~((exponent == 0) & (rest <= 0x400000)) if round_mode == "nearest" else up
    result = exponent + up
    result = np.where(result > 0xFE, 0xFE if saturate else 0xFF, result)
    return np.asarray(np.where(is_special, 0xFF, result).astype(np.uint8)).view(_EXPONENTS)
