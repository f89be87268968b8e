"""Bounds of arrays by numbers, and the bounds of dtypes; NaN stays NaN.

numpy clips float32 and float64 several times as fast as it computes the maximum of an array and a number, so they are
clipped, with an infinity for the missing bound.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from engine.tensor import Array, DType

_CLIPPED: Final = (np.dtype(np.float32), np.dtype(np.float64))


def at_least(x: Array, low: Any) -> Array:
    """Return max(x, low) for a number of the dtype of x, or a Python one."""
    if x.dtype in _CLIPPED:
        return np.asarray(x.clip(low, np.inf))
    return np.asanyarray(np.maximum(x, low))


def at_most(x: Array, high: Any) -> Array:
    """Return min(x, high) for a number of the dtype of x, or a Python one."""
    if x.dtype in _CLIPPED:
        return np.asarray(x.clip(-np.inf, high))
    return np.asanyarray(np.minimum(x, high))


def clamped(x: Array, low: Any, high: Any) -> Array:
    """Return min(max(x, low), high) for numbers of the dtype of x, or Python ones."""
    if x.dtype in _CLIPPED:
        return np.asarray(x.clip(low, high))
    return np.asanyarray(np.minimum(np.maximum(x, low), high))


def extremes(dtype: DType) -> tuple[Any, Any]:
    """Return the smallest and the largest value of a real dtype, as Python numbers."""
    if dtype.kind in "iu":
        return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    return (False, True) if dtype.kind == "b" else (-math.inf, math.inf)
