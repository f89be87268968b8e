"""Scores of classes -> probabilities."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def activate(scores: NDArray[np.float64], activation: str) -> NDArray[np.float64]:
    """Scores (N, classes) as probabilities; "auto" leaves rows alone that already are a distribution."""
    if activation == "none":
        return scores
    with np.errstate(all="ignore"):  # overflow to infinity and NaN are the right answers here
        if activation == "sigmoid":
            return np.asarray(1 / (1 + np.exp(-scores)))
        # The ufuncs' own methods: those of arrays go through Python.
        shifted = np.exp(scores - np.maximum.reduce(scores, axis=1, keepdims=True, initial=-np.inf))
        softmax = np.asarray(shifted / np.add.reduce(shifted, axis=1, keepdims=True))
        if activation == "softmax":
            return softmax
        is_distribution = np.logical_and.reduce(scores >= 0, axis=1)
        if not is_distribution.any():
            return softmax
        is_distribution &= np.abs(np.add.reduce(scores, axis=1) - 1) < 1e-3
        return np.where(is_distribution[:, None], scores, softmax)
