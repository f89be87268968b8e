"""Contest of engines: each answer is checked before it is timed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from app.measuring.rivals import Array, RivalError, Run, message_of
from app.measuring.timing import Times, take_turns

# Winograd in float32 stays within 1e-4 in deep networks; unrequested bfloat16 would be at 1e-2.
ALLOWED_SHARE: Final = 1e-3


class Contest:
    """Engines in the order they entered.

    Args:
        inputs: given to all of them.
        expected: the right answer.

    Attributes:
        errors: difference of each from the right answer, as a share of the largest magnitude.
    """

    def __init__(self, inputs: Sequence[Array], expected: Sequence[Array]) -> None:
        self.errors: dict[str, float] = {}
        self._inputs = inputs
        self._expected = expected
        self._runs: dict[str, Run] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def enter(self, name: str, run: Run) -> None:
        """Add an engine.

        Raises:
            RivalError: it cannot run the inputs, or its answer is wrong.
        """
        try:
            answer = run(self._inputs)
        except Exception as exc:  # third-party libraries raise anything
            raise RivalError(f"cannot run it: {message_of(exc)}") from exc
        error = error_share(answer, self._expected)
        if not error <= ALLOWED_SHARE:
            raise RivalError(f"wrong answer: it differs by {error:.1e} of the largest magnitude")
        self._runs[name], self.errors[name] = run, error

    def measure(self, seconds: float, report: Callable[[int, int], None]) -> dict[str, Times]:
        """Return the times of all engines, run in turn."""
        return take_turns({name: partial(run, self._inputs) for name, run in self._runs.items()}, seconds, report)


def error_share(found: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]], *, has_columns: bool = False) -> float:
    """Return the largest difference as a share of the output's largest magnitude; infinity for wrong shapes or NaN.

    Only floating-point outputs are compared: a class or an index may change with the last bit of its input.

    Args:
        has_columns: entries along the last axis have different units (pixels, probabilities): each column is
            compared with its own largest magnitude, and the worst counts.
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
