"""Work that is no request: it takes the place of one run, and is done in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from app.scheduling.job import Demand


class Errand:
    """A function's call as work."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._result: Any = None

    def prepare(self) -> Demand:
        """Nothing to prepare."""
        return Demand(items=0)

    def prepare_here(self) -> bool:
        """Nobody knows how long it takes."""
        return False

    def run(self, cancelled: Callable[[], bool]) -> None:
        """All of it; what it does asks by itself whether it is cancelled."""
        self._result = self._call()

    def run_with(self, others: Sequence[Any], cancelled: Callable[[], bool]) -> None:
        """Never: it has no group."""
        raise NotImplementedError

    def finish(self, queue_s: float) -> Any:
        """The result of the work."""
        return self._result
