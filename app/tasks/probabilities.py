"""Conversion of class scores to probabilities."""

from __future__ import annotations

import math
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


def activate_few(scores: list[float], activation: str) -> list[float]:
    """Do the same for a few finite scores of one item; faster than numpy, whose calls cost as much as for many."""
    if activation == "sigmoid":
        return [_sigmoid(score) for score in scores]
    if activation == "none" or (activation == "auto" and _is_distribution(scores)):
        return scores
    most = max(scores, default=0.0)
    shifted = [math.exp(score - most) for score in scores]
    total = sum(shifted)
    return [each / total for each in shifted]


def _is_distribution(scores: list[float]) -> bool:
    return min(scores, default=0.0) >= 0 and abs(sum(scores) - 1) < _ROUNDING


def _sigmoid(score: float) -> float:
    if score >= 0:
        return 1 / (1 + math.exp(-score))
    small = math.exp(score)  # cannot overflow
    return small / (1 + small)
