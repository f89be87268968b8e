"""Engines that answer the same inputs, checked before they are timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from app.measuring.answers import ALLOWED_SHARE, error_share
from app.measuring.rivals import Array, RivalError, Run, told
from app.measuring.timing import Times, take_turns


class Contest:
    """The engines, in the order they entered.

    Args:
        inputs: what all of them are given.
        expected: the right answer.

    Attributes:
        errors: how far each is from it, as a share of the largest magnitude.
    """

    def __init__(self, inputs: Sequence[Array], expected: Sequence[Array]) -> None:
        self.errors: dict[str, float] = {}
        self._inputs = inputs
        self._expected = expected
        self._runs: dict[str, Run] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def enter(self, name: str, run: Run) -> None:
        """Let an engine take part.

        Raises:
            RivalError: it cannot run the inputs, or answers something else.
        """
        try:
            answer = run(self._inputs)
        except Exception as exc:  # whatever a library of somebody else's raises
            raise RivalError(f"cannot run it: {told(exc)}") from exc
        error = error_share(answer, self._expected)
        if not error <= ALLOWED_SHARE:
            raise RivalError(f"another answer: it differs by {error:.1e} of the largest magnitude")
        self._runs[name], self.errors[name] = run, error

    def measure(self, seconds: float, tell: Callable[[int, int], None]) -> dict[str, Times]:
        """Times of all engines, taken in turn."""
        return take_turns({name: partial(run, self._inputs) for name, run in self._runs.items()}, seconds, tell)
