"""Reversal of sequences of different lengths."""

from __future__ import annotations

import numpy as np

from engine.errors import ShapeError
from engine.tensor import Array


def checked_lengths(lengths: Array, steps: int) -> Array:
    """Return the lengths; refuse those that do not fit the number of steps."""
    if lengths.dtype.kind not in "iu" or (lengths.size and not 0 <= lengths.min() <= lengths.max() <= steps):
        raise ShapeError("lengths do not fit the steps", found=lengths.tolist()[:8], expected=f"0 to {steps}")
    return lengths


def turned(x: Array, lengths: Array) -> Array:
    """Reverse each sequence of (T, B, ...) up to its length; keep the rest."""
    step = np.arange(len(x))[:, None]
    source = np.where(step < lengths, lengths - 1 - step, step)
    return np.asarray(np.take_along_axis(x, source.reshape(*source.shape, *(1,) * (x.ndim - 2)), axis=0))
