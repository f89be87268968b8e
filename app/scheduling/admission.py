"""Admission control: which requests may wait in a model's queue, and when refused clients should retry.

A request is refused when ``max_queue`` others wait, or when its expected wait, from recent run times, is longer than
``max_wait_s``. Unset, this limit is one second, and none while at most FEW_REQUESTS wait: a few clients that each send
the next request as soon as they are answered are never refused.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from typing import Final

from app.errors import QueueFullError
from app.scheduling.job import DEFAULT_PRIORITY

# Weight of a new measurement, and the largest ratio to the average that an outlier counts with.
_WEIGHT: Final = 0.2
_MAX_RATIO: Final = 8.0
# A working thread is done with requests as short as this sooner than another thread is awake.
_QUICK_S: Final = 0.0003
# The longest wait when max_wait_s is unset, and the number of waiting requests up to which any wait is accepted.
DEFAULT_MAX_WAIT_S: Final = 1.0
FEW_REQUESTS: Final = 24
# The longest Retry-After.
_MAX_RETRY_AFTER_S: Final = 3600
# Share by which Retry-After-Ms is randomly prolonged, so that clients refused together do not retry together.
_JITTER: Final = 0.5


class Average:
    """An exponential moving average; None before the first measurement."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float | None = None

    def add(self, found: float) -> None:
        """Add a measurement."""
        known = self.value
        self.value = found if known is None else known + _WEIGHT * (min(found, known * _MAX_RATIO) - known)


class StepTimes:
    """Moving averages: seconds to prepare a request, to run an item and to finish an answer; items per request.

    The turnaround of a run that follows another without a pause is the time between their ends. It includes all else
    that the processor does meanwhile, so it predicts the wait of a long queue.
    """

    def __init__(self) -> None:
        self.prepare_s = Average()
        self.item_s = Average()
        self._item_turnaround_s = Average()
        self.finish_s = Average()
        self.items = Average()

    @property
    def is_quick(self) -> bool:
        """Return whether a request takes less than _QUICK_S in all."""
        parts = (self.prepare_s.value, self.item_s.value, self.finish_s.value)
        return sum(1.0 if part is None else part for part in parts) * max(1.0, self.items.value or 1.0) < _QUICK_S

    def ran(self, seconds: float, items: int, turnaround_s: float | None = None) -> None:
        """Add a run that has ended.

        Args:
            turnaround_s: time since the end of the run before it, if this one followed without a pause.
        """
        if not items:
            return
        self.item_s.add(seconds / items)
        if turnaround_s is not None:
            self._item_turnaround_s.add(turnaround_s / items)

    def wait_s(self, *, unprepared: int, threads: int, items: float, runs: int) -> float:
        """Return the expected wait of a request that arrives now, 0 when no run was measured yet.

        Args:
            unprepared: requests that wait to be prepared.
            threads: threads that prepare requests.
            items: items of the requests that wait for a run or are running.
            runs: runs at a time.
        """
        if self.item_s.value is None:  # preparing alone says nothing of how long runs take
            return 0.0
        more = unprepared * (self.items.value or 1.0)
        # Preparing and running overlap: the slower of the two determines the wait.
        return max((items + more) * self._an_item_s(runs), unprepared * (self.prepare_s.value or 0.0) / threads)

    def _an_item_s(self, runs: int) -> float:
        return max((self.item_s.value or 0.0) / runs, self._item_turnaround_s.value or 0.0)


class Admission:
    """Decision about each arriving request.

    Args:
        name: the model, for messages.
        queue: number of requests that may wait.
        max_wait_s: longest wait; None for DEFAULT_MAX_WAIT_S, and no limit while at most FEW_REQUESTS wait.
        clock: the clock of deadlines, such as time.monotonic.
    """

    def __init__(
        self,
        name: str,
        *,
        queue: int,
        max_wait_s: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._queue = queue
        self._max_wait_s = max_wait_s
        self._clock = clock

    def refusal(self, waiting: int, idle: int, wait_s: float, deadline: float, priority: int) -> QueueFullError | None:
        """Return the error for a request that is refused, or None.

        Args:
            waiting: requests that are queued or being prepared.
            idle: runs that could begin now, for which some of these requests are being prepared.
            wait_s: expected wait of the request.
        """
        if waiting >= self._queue + idle:
            return self._refused(
                f"{waiting} requests are waiting, expected at most {self._queue}", wait_s, limit=self._queue
            )
        if priority < DEFAULT_PRIORITY:  # it overtakes the waiting requests
            return None
        limit_s = min(max(0.0, deadline - self._clock()), self._limit_s(waiting))
        if wait_s <= limit_s:
            return None
        return self._refused(
            f"the request would wait about {wait_s:.3g} seconds, expected at most {limit_s:.3g}",
            wait_s - limit_s,
            wait_s=round(wait_s, 3),
        )

    def _limit_s(self, waiting: int) -> float:
        """Return the longest accepted wait."""
        if self._max_wait_s is not None:
            return self._max_wait_s
        return math.inf if waiting <= FEW_REQUESTS else DEFAULT_MAX_WAIT_S

    def _refused(self, why: str, free_in_s: float, **detail: float) -> QueueFullError:
        free_in_s = min(free_in_s, _MAX_RETRY_AFTER_S)
        retry_after_s = max(1, math.ceil(free_in_s))
        exact_ms: float | None = None
        if free_in_s > 0:  # else nothing was measured yet
            exact_ms = 1e3 * free_in_s * random.uniform(1, 1 + _JITTER)
        return QueueFullError(
            f"'{self._name}' is busy: {why}", retry_after_s=retry_after_s, retry_after_ms=exact_ms, **detail
        )
