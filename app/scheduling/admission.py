"""Who may wait in a model's queue, and what the others are told."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

from app.errors import QueueFullError
from app.scheduling.job import USUAL_PRIORITY
from app.scheduling.pressure import Marks, Pressure

# Who waits longer than this has come too early, whatever is told.
_MOST_ADVICE_S: Final = 3600


class Admission:
    """Decides about each request that comes.

    Args:
        name: of the model, for messages.
        places: requests that may be there at once, whatever they do.
        retry_after_s: the least that a refused client is told.
        max_wait_s: the longest wait; None where a lasting queue is kept short, and a burst may wait.
        clock: as time.monotonic, which deadlines are told on.
    """

    def __init__(
        self,
        name: str,
        *,
        places: int,
        retry_after_s: int,
        max_wait_s: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._places = places
        self._retry_after_s = retry_after_s
        self._max_wait_s = max_wait_s
        self._clock = clock
        self.pressure = Pressure()

    def has_place(self, pending: int) -> bool:
        """Whether one more may be there."""
        return pending < self._places

    def refusal(
        self, pending: int, wait_s: float, marks: Marks, deadline: float, priority: int, *, is_behind: bool = False
    ) -> QueueFullError | None:
        """Why a request is not let in; None for one that is.

        Args:
            pending: requests that are there.
            wait_s: how long it would wait.
            is_behind: whether others are let in before it, where not all are.
        """
        if not self.has_place(pending):
            return self._refused(f"{pending} requests run or wait, at most {self._places} may", wait_s,
                                 limit=self._places)  # fmt: skip
        if priority < USUAL_PRIORITY:  # it passes by those that wait
            return None
        now = self._clock()
        left_s = deadline - now
        if self._max_wait_s is not None:
            left_s = min(left_s, self._max_wait_s)
        elif not self.pressure.admits(wait_s + (marks.behind_s if is_behind else 0.0), marks, now):
            return self._refused(
                f"more requests come than can be answered, and this one would wait some {wait_s:.3g} seconds",
                wait_s,
                wait_s=round(wait_s, 3),
            )
        if wait_s > max(0.0, left_s):
            return self._refused(
                f"the request would wait some {wait_s:.3g} seconds, at most {left_s:.3g} may be",
                wait_s - left_s,
                wait_s=round(wait_s, 3),
            )
        return None

    def _refused(self, why: str, free_in_s: float, **detail: float) -> QueueFullError:
        retry_after_s = max(self._retry_after_s, min(math.ceil(free_in_s), _MOST_ADVICE_S))
        return QueueFullError(f"'{self._name}' is busy: {why}", retry_after_s=retry_after_s, **detail)
