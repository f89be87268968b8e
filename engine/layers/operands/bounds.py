"""Numbers as bounds of arrays, and the bounds of dtypes; NaN stays NaN.

numpy clips float32 and float64 several times as fast as it finds the larger of an array and a number, so they are
clipped, with an infinity for the bound that is not there.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from engine.tensor import Array, DType

_CLIPPED: Final = (np.dtype(np.float32), np.dtype(np.float64))


def at_least(x: Array, low: Any) -> Array:
    """max(x, low) for a number of the dtype of x, or a Python one."""
    if x.dtype in _CLIPPED:
        return np.asarray(x.clip(low, np.inf))
    return np.asanyarray(np.maximum(x, low))


def at_most(x: Array, high: Any) -> Array:
    """min(x, high), likewise."""
    if x.dtype in _CLIPPED:
        return np.asarray(x.clip(-np.inf, high))
    return np.asanyarray(np.minimum(x, high))


def clamped(x: Array, low: Any, high: Any) -> Array:
    """min(max(x, low), high), likewise."""
    if x.dtype in _CLIPPED:
        return np.asarray(x.clip(low, high))
    return np.asanyarray(np.minimum(np.maximum(x, low), high))


def extremes(dtype: DType) -> tuple[Any, Any]:
    """What no element of a real dtype is below, and what none is above, as Python numbers."""
    if dtype.kind in "iu":
        return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    return (False, True) if dtype.kind == "b" else (-math.inf, math.inf)
