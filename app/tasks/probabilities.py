"""Conversion of class scores to probabilities."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

# Tolerance for the sum of a distribution.
_ROUNDING: Final = 1e-3


def activate(scores: NDArray[np.float64], activation: str) -> NDArray[np.float64]:
    """Return scores (N, classes) as probabilities; "auto" keeps rows that already are a distribution."""
    if activation == "none":
        return scores
    with np.errstate(all="ignore"):  # overflow to infinity and NaN are intended here
        if activation == "sigmoid":
            return np.asarray(1 / (1 + np.exp(-scores)))
        # ufunc methods are faster than array methods, which go through Python.
        shifted = np.exp(scores - np.maximum.reduce(scores, axis=1, keepdims=True, initial=-np.inf))
        softmax = np.asarray(shifted / np.add.reduce(shifted, axis=1, keepdims=True))
        if activation == "softmax":
            return softmax
        is_distribution = np.logical_and.reduce(scores >= 0, axis=1)
        if not is_distribution.any():
            return softmax
        is_distribution &= np.abs(np.add.reduce(scores, axis=1) - 1) < _ROUNDING
        return np.where(is_distribution[:, None], scores, softmax)
