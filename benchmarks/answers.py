"""Is an answer right? Held against PyTorch's before anything is timed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# Winograd in float32 differs from PyTorch by up to 1e-4 in deep networks, bfloat16 by 1e-2.
ALLOWED_SHARE = 1e-3


def error_share(found: NDArray[Any], expected: NDArray[Any], *, has_columns: bool = False) -> float:
    """Largest absolute difference as a share of the largest magnitude expected; infinite for another shape or a NaN.

    Args:
        has_columns: entries along the last axis measure different things (pixels, probabilities): each column is
            held against its own largest magnitude, and the worst counts.
    """
    if found.shape != expected.shape or not np.isfinite(found).all():
        return float("inf")
    axes = tuple(range(expected.ndim - 1)) if has_columns else None
    difference = np.abs(found.astype(np.float64) - expected).max(axis=axes)
    magnitude = np.abs(expected).max(axis=axes)
    return float(np.max(difference / np.maximum(magnitude, np.finfo(np.float32).tiny)))
