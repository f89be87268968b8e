"""Is an answer right? Held against another before anything is timed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

# Winograd in float32 stays within 1e-4 in deep networks; bfloat16, which nobody asked for, is at 1e-2.
ALLOWED_SHARE: Final = 1e-3


def error_share(found: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]], *, has_columns: bool = False) -> float:
    """Largest difference as a share of the largest magnitude of its output; infinite for other shapes, and for a NaN.

    Only numbers that are not whole are compared: a class or an index may change with the last bit of what it is from.

    Args:
        has_columns: entries along the last axis measure different things (pixels, probabilities): each column is
            held against its own largest magnitude, and the worst counts.
    """
    if [each.shape for each in found] != [each.shape for each in expected]:
        return math.inf
    pairs = zip(found, expected, strict=True)
    return max((_share(a, b, has_columns) for a, b in pairs if b.dtype.kind == "f" and b.size), default=0.0)


def _share(found: NDArray[Any], expected: NDArray[Any], has_columns: bool) -> float:
    wide = expected.astype(np.float64)
    if not np.isfinite(wide).all():
        return 0.0 if np.array_equal(found, expected, equal_nan=True) else math.inf
    if not np.isfinite(found).all():
        return math.inf
    axes = tuple(range(wide.ndim - 1)) if has_columns else None
    difference = np.abs(found.astype(np.float64) - wide).max(axis=axes)
    magnitude = np.abs(wide).max(axis=axes)
    return float(np.max(difference / np.maximum(magnitude, np.finfo(np.float32).tiny)))
