"""Greedy decoding of outputs trained with connectionist temporal classification (CTC)."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.errors import ConfigError

# Class that separates equal symbols and is no symbol itself.
BLANK: Final = 0
# PaddleOCR appends a space to the dictionary, which may end in one that was stripped with the other empty lines.
_MOST_SPACES: Final = 2
# Tolerance for the sum of a distribution.
_ROUNDING: Final = 1e-3


class Decoded(NamedTuple):
    """Symbols of one item: class, first step, step after the last, and probability of each at its first step."""

    classes: NDArray[np.intp]
    steps: NDArray[np.intp]
    ends: NDArray[np.intp]
    probabilities: NDArray[np.float64]

    @property
    def score(self) -> float:
        """Return the mean probability, 0 without a symbol."""
        return float(self.probabilities.mean()) if self.probabilities.size else 0.0


def symbols(labels: tuple[str, ...] | None, classes: int) -> tuple[str, ...]:
    """Return the text of each class: the blank, then the dictionary, then spaces. An empty label is a space too.

    Raises:
        ConfigError: there is no dictionary, or it does not have as many symbols as the model; has both counts.
    """
    found = len(labels or ())
    if labels is None or not 0 <= classes - 1 - found <= _MOST_SPACES:
        raise ConfigError(
            f"labels: found {found or 'no'} characters, expected {max(classes - 1, 0)}, or {max(classes - 2, 0)}"
            f" without a space at the end: the model has {classes} classes, of which the first is the blank"
        )
    return ("", *(label or " " for label in labels), *" " * (classes - 1 - found))


def decode(scores: NDArray[Any], blank: int = BLANK) -> list[Decoded]:
    """Return the symbols of each item: the best class of each step, without repetitions and blanks.

    A step with a value that is not a number counts as blank.

    Args:
        scores: probabilities or logits (N, steps, classes), with at least one class.
        blank: the class that separates equal symbols.
    """
    best = scores.argmax(axis=2)  # the first NaN if there is one
    probabilities = _best_probabilities(scores, np.take_along_axis(scores, best[..., None], axis=2)[..., 0])
    best = np.where(np.isfinite(probabilities), best, blank)
    return [collapse(row, values, blank) for row, values in zip(best, probabilities, strict=True)]


def collapse(best: NDArray[np.intp], probabilities: NDArray[np.float64], blank: int) -> Decoded:
    """Return the symbols of the best classes of steps, without repetitions and blanks."""
    is_first = np.ones(len(best), bool)
    is_first[1:] = best[1:] != best[:-1]
    firsts = np.flatnonzero(is_first)
    ends = np.append(firsts[1:], len(best))
    is_symbol = best[firsts] != blank
    steps = firsts[is_symbol]
    return Decoded(best[steps], steps, ends[is_symbol], probabilities[steps])


def step_probabilities(scores: NDArray[Any]) -> NDArray[np.float64]:
    """Return scores (steps, classes) as probabilities: as they are where they are distributions, else softmax."""
    with np.errstate(all="ignore"):  # overflow to infinity and NaN are intended here
        values = scores.astype(np.float64)
        is_distribution = (values.min(axis=1) >= 0) & (np.abs(values.sum(axis=1) - 1) < _ROUNDING)
        if not is_distribution.all():
            logits = np.exp(values[~is_distribution] - values[~is_distribution].max(axis=1, keepdims=True))
            values[~is_distribution] = logits / logits.sum(axis=1, keepdims=True)
    return values


def _best_probabilities(scores: NDArray[Any], most: NDArray[Any]) -> NDArray[np.float64]:
    """Return the probability (N, steps) of the best class: its score where scores are a distribution, else softmax."""
    with np.errstate(all="ignore"):  # overflow to infinity and NaN are intended here
        is_distribution = (scores.min(axis=2) >= 0) & (np.abs(scores.sum(axis=2, dtype=np.float32) - 1) < _ROUNDING)
        probabilities = most.astype(np.float64)
        if not is_distribution.all():
            logits = scores[~is_distribution].astype(np.float64)
            probabilities[~is_distribution] = 1 / np.exp(logits - logits.max(axis=1, keepdims=True)).sum(axis=1)
    return probabilities
