"""Which requests may wait in a model's queue, and when the others may come again.

A request waits at most ``max_wait_s``, by the model's recent run time, and among at most ``max_queue`` others. Beyond
that it is refused with the wait that was expected. Where ``max_wait_s`` is unset it is one second, or any time while at
most FEW_REQUESTS wait: so many clients may ask again as soon as they are answered, and none is ever refused.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from typing import Final

from app.errors import QueueFullError
from app.scheduling.job import USUAL_PRIORITY

# How much a new figure counts; one that is far beyond the others says little of the next.
_WEIGHT: Final = 0.2
_MOST_TIMES: Final = 8.0
# A thread that is at work with requests as short as this will soon look for more: to wake another one costs more.
_QUICK_S: Final = 0.0003
# The longest wait where the setting is unset, and the number of waiting requests up to which any wait is accepted.
USUAL_WAIT_S: Final = 1.0
FEW_REQUESTS: Final = 24
# The longest time that a refused client is told.
_MOST_ADVICE_S: Final = 3600
# Clients that are refused together are told times that differ by up to this share, so they do not come back together.
_JITTER: Final = 0.5


class Average:
    """An exponential moving average; None before the first measurement."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float | None = None

    def add(self, found: float) -> None:
        """Take one more measurement in."""
        known = self.value
        self.value = found if known is None else known + _WEIGHT * (min(found, known * _MOST_TIMES) - known)


class Pace:
    """Seconds that preparing a request, an item of a run, and making an answer take; items that a request has.

    A run that follows another one at once has a turn: from the end of that one to its own. What else the processor does
    between them is in it, so that it says how long those wait who wait for many.
    """

    def __init__(self) -> None:
        self.prepare_s = Average()
        self.item_s = Average()
        self._item_turn_s = Average()
        self.finish_s = Average()
        self.items = Average()

    @property
    def is_quick(self) -> bool:
        """Whether requests are over in no time."""
        parts = (self.prepare_s.value, self.item_s.value, self.finish_s.value)
        return sum(1.0 if part is None else part for part in parts) * max(1.0, self.items.value or 1.0) < _QUICK_S

    def ran(self, seconds: float, items: int, turn_s: float | None = None) -> None:
        """A run has ended.

        turn_s: since the one before it has, where it followed at once.
        """
        if not items:
            return
        self.item_s.add(seconds / items)
        if turn_s is not None:
            self._item_turn_s.add(turn_s / items)

    def wait_s(self, *, unprepared: int, threads: int, items: float, runs: int) -> float:
        """How long a request that comes now waits, about: 0 where nothing is known.

        Args:
            unprepared: requests that wait to be prepared, on so many threads.
            items: of requests that wait for a run or run, so many at once.
        """
        if self.item_s.value is None:  # preparing alone says nothing of how long runs take
            return 0.0
        more = unprepared * (self.items.value or 1.0)
        # Requests are prepared while others run: the slower of both sets the pace.
        return max((items + more) * self._an_item_s(runs), unprepared * (self.prepare_s.value or 0.0) / threads)

    def _an_item_s(self, runs: int) -> float:
        return max((self.item_s.value or 0.0) / runs, self._item_turn_s.value or 0.0)


class Admission:
    """Decides about each request that comes.

    Args:
        name: of the model, for messages.
        queue: requests that may wait.
        retry_after_s: the least that a refused client is told, in whole seconds; 1 for as little as is expected.
        max_wait_s: the longest wait; None for USUAL_WAIT_S, or any while at most FEW_REQUESTS wait.
        clock: as time.monotonic, which deadlines are told on.
    """

    def __init__(
        self,
        name: str,
        *,
        queue: int,
        retry_after_s: int,
        max_wait_s: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._queue = queue
        self._retry_after_s = retry_after_s
        self._max_wait_s = max_wait_s
        self._clock = clock

    def refusal(self, waiting: int, idle: int, wait_s: float, deadline: float, priority: int) -> QueueFullError | None:
        """Return why a request is not let in; None for one that is.

        Args:
            waiting: requests that are there and do not run.
            idle: runs that could begin now, for which some of them are being prepared.
            wait_s: how long the request is expected to wait.
        """
        if waiting >= self._queue + idle:
            return self._refused(f"{waiting} requests wait, at most {self._queue} may", wait_s, limit=self._queue)
        if priority < USUAL_PRIORITY:  # it passes by those that wait
            return None
        limit_s = min(max(0.0, deadline - self._clock()), self._limit_s(waiting))
        if wait_s <= limit_s:
            return None
        return self._refused(
            f"the request would wait some {wait_s:.3g} seconds, at most {limit_s:.3g} may be",
            wait_s - limit_s,
            wait_s=round(wait_s, 3),
        )

    def _limit_s(self, waiting: int) -> float:
        """Return the longest wait that is accepted behind so many waiting requests."""
        if self._max_wait_s is not None:
            return self._max_wait_s
        return math.inf if waiting <= FEW_REQUESTS else USUAL_WAIT_S

    def _refused(self, why: str, free_in_s: float, **detail: float) -> QueueFullError:
        free_in_s = min(free_in_s, _MOST_ADVICE_S)
        told_s = max(self._retry_after_s, math.ceil(free_in_s))
        least_s = self._retry_after_s if self._retry_after_s > 1 else 0.0
        exact_ms: float | None = None
        if free_in_s > 0:  # else nothing was measured yet
            exact_ms = 1e3 * max(least_s, free_in_s) * random.uniform(1, 1 + _JITTER)
        return QueueFullError(f"'{self._name}' is busy: {why}", retry_after_s=told_s, retry_after_ms=exact_ms, **detail)
