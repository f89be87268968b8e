"""What runs have taken lately, and so how long the next request would wait."""

from __future__ import annotations

from typing import Final

# How much a new figure counts; one that is far beyond the others says little of the next.
_WEIGHT: Final = 0.2
_MOST_TIMES: Final = 8.0
# A thread that is at work with requests as short as this will soon look for more: to wake another one costs more.
_QUICK_S: Final = 0.0003


class Average:
    """Of what was measured last; None before the first."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float | None = None

    def add(self, found: float) -> None:
        """One more figure."""
        known = self.value
        self.value = found if known is None else known + _WEIGHT * (min(found, known * _MOST_TIMES) - known)


class Pace:
    """Seconds that preparing a request, an item of a run, and making an answer take; items that a request has."""

    def __init__(self) -> None:
        self.prepare_s = Average()
        self.item_s = Average()
        self.finish_s = Average()
        self.items = Average()

    @property
    def is_quick(self) -> bool:
        """Whether requests are over in no time."""
        parts = (self.prepare_s.value, self.item_s.value, self.finish_s.value)
        return sum(1.0 if part is None else part for part in parts) * max(1.0, self.items.value or 1.0) < _QUICK_S

    def ran(self, seconds: float, items: int) -> None:
        """A run has ended."""
        if items:
            self.item_s.add(seconds / items)

    def wait_s(self, *, unprepared: int, threads: int, items: float, runs: int) -> float:
        """How long a request that comes now waits, about: 0 where nothing is known.

        Args:
            unprepared: requests that wait to be prepared, on so many threads.
            items: of requests that wait for a run or run, so many at once.
        """
        more = unprepared * (self.items.value or 1.0)
        run_s = (items + more) * (self.item_s.value or 0.0) / runs
        # Requests are prepared while others run: the slower of both sets the pace.
        return max(run_s, unprepared * (self.prepare_s.value or 0.0) / threads)
