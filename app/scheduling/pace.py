"""What runs have taken lately, and so how long the next request would wait."""

from __future__ import annotations

from typing import Final

from app.scheduling.pressure import Marks

# How much a new figure counts; one that is far beyond the others says little of the next.
_WEIGHT: Final = 0.2
_MOST_TIMES: Final = 8.0
# A thread that is at work with requests as short as this will soon look for more: to wake another one costs more.
_QUICK_S: Final = 0.0003


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
        self._turn_s = Average()
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
            self._turn_s.add(turn_s)
            self._item_turn_s.add(turn_s / items)

    def wait_s(self, *, unprepared: int, threads: int, items: float, runs: int) -> float:
        """How long a request that comes now waits, about: 0 where nothing is known.

        Args:
            unprepared: requests that wait to be prepared, on so many threads.
            items: of requests that wait for a run or run, so many at once.
        """
        more = unprepared * (self.items.value or 1.0)
        # Requests are prepared while others run: the slower of both sets the pace.
        return max((items + more) * self._an_item_s(runs), unprepared * (self.prepare_s.value or 0.0) / threads)

    def marks(self, runs: int) -> Marks:
        """What is a long wait, where so many runs go on at once."""
        an_item_s = self._an_item_s(runs)
        return Marks.of(an_item_s * (self.items.value or 1.0), self._turn_s.value or an_item_s)

    def _an_item_s(self, runs: int) -> float:
        return max((self.item_s.value or 0.0) / runs, self._item_turn_s.value or 0.0)
