"""Requests that have come and have yet to be begun: their turn on the event loop is a wait as well.

The loop takes what all connections bring before it begins with any of it. With a small model that is most of the time a
request takes, and none of it is seen by the model's queue.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable

from app.errors import ServiceError
from app.models.keeping.version import Version
from app.scheduling.pace import Average
from app.scheduling.scheduler import Scheduler


class Arrivals:
    """Counted on the event loop, by whoever makes requests of what connections bring.

    Args:
        clock: as time.perf_counter.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._count = 0
        self._of: Counter[Scheduler] = Counter()
        # From one that is begun to the next, where that one was there already.
        self._turn_s = Average()
        self._begun_at: float | None = None
        # Since when requests of this turn of the loop are answered as they come.
        self._at_once_since: float | None = None

    def __len__(self) -> int:
        return self._count

    @property
    def wait_s(self) -> float:
        """How long who comes now waits until it is begun, about: for those before it, in this turn of the loop too."""
        waited_s = 0.0 if self._at_once_since is None else self._clock() - self._at_once_since
        return waited_s + self._count * (self._turn_s.value or 0.0)

    def comes(self, lane: Scheduler | None) -> None:
        """One is there, for this model or for something else."""
        self._count += 1
        if lane is not None:
            self._of[lane] += 1

    def begins(self, lane: Scheduler | None) -> None:
        """It is its turn."""
        now = self._clock()
        if self._begun_at is not None:
            self._turn_s.add(now - self._begun_at)
        self._count -= 1
        self._begun_at = now if self._count else None
        if lane is not None:
            self._of[lane] -= 1
            if not self._of[lane]:
                del self._of[lane]

    def begins_at_once(self, loop: asyncio.AbstractEventLoop) -> None:
        """One is begun as it comes: those that came with it, in the same turn of the loop, wait for it."""
        if self._at_once_since is None:
            self._at_once_since = self._clock()
            loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._at_once_since = None

    def refusal(self, version: Version, deadline: float, *, is_behind: bool = False) -> ServiceError | None:
        """What a request that comes now is refused with, when nothing is known of it but its model.

        is_behind: whether others come first.
        """
        lane = version.lane
        return lane.refusal(deadline, ahead=self._of.get(lane, 0), ahead_s=self.wait_s, is_behind=is_behind)

    def is_clear(self, version: Version) -> bool:
        """Whether nobody else is on the way, or there: such a request is always taken."""
        return not self._count and self._at_once_since is None and version.lane.is_empty
