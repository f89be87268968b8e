"""What came of the request at hand, for its line of the log and the headers of its answer.

Whoever answers requests puts an account where the data plane finds it, and reads it at the end: in between it goes
through tasks and threads with the request's context.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from app.models.statistics import Timing


@dataclass(slots=True)
class Account:
    """Written once it is known: which model of the store the request reached, and where the time of its answer went.

    Attributes:
        began: when it reached the model, on time.perf_counter()'s clock.
    """

    model: str | None = None
    version: int | None = None
    items: int | None = None
    timing: Timing | None = None
    began: float | None = None

    def fields(self) -> dict[str, object]:
        """What is known of it, for a line of the log."""
        if self.model is None:
            return {}
        told: dict[str, object] = {"model": self.model, "version": self.version}
        if self.timing is not None:
            parts = self.timing.as_ms()
            del parts["total_ms"]  # that the line tells in its own way, with what comes before and after
            told |= {"items": self.items, **parts}
        return told


account: Final[ContextVar[Account | None]] = ContextVar("account", default=None)
