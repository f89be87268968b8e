"""Whether a queue may grow: a long one is a burst, and is answered; one that stays long is too much, and is kept short.

How long a queue is does not tell one from the other. What does is how long it has not been short (RFC 8289, CoDel): a
burst ends, and all who came with it are answered, if late. When more come than can be answered the queue never ends,
and all that a long one does is that everybody waits: as many are answered with a short one, and the others know at
once. So newcomers wait a few runs at most from then on, until nobody has to be refused any more.

A few clients that ask again as soon as they are answered are a queue that never ends, too, but no overload: it does not
grow. Waits for so many turns are never too long. Once newcomers are refused, though, those few, asking again at once,
would look like many; so now and then more are let in, to see whether the queue still grows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

# What is short in any case, and how long a queue may be long at least (both as RFC 8289 has them). A wait that nobody
# minds is never too long: of small models that is a hundred clients that ask again at once.
_SHORT_S: Final = 0.005
_LONG_S: Final = 0.025
_BURST_S: Final = 0.1
# The same in turns, one a request: what keeps the model at work whatever comes between two runs; what so many clients
# wait that ask again as soon as they are answered; and the time it takes to answer a burst of as many once more.
_SHORT_TURNS: Final = 4
_LONG_TURNS: Final = 24
_BURST_TURNS: Final = 32
# A run in which several have their turn must not be kept waiting for them.
_SHORT_RUNS: Final = 2
# Who was refused a moment ago, and has not waited, is let in behind others: where there is not much to wait for. They
# are heard a few milliseconds apart: with less to wait for, the model would have nothing to do meanwhile.
_BEHIND: Final = 1 / 2
# It is over when nobody was refused for so long; else more are let in after so long, and less and less often.
_CALM_S: Final = 1.0
_TRIAL_S: Final = (2.0, 30.0)


@dataclass(frozen=True, slots=True)
class Marks:
    """What is a short wait, what a long one, and for how long it may be long; in seconds."""

    short_s: float
    long_s: float
    burst_s: float

    @classmethod
    def of(cls, turn_s: float, run_s: float) -> Self:
        """Of a model.

        Args:
            turn_s: that one request takes, of those that follow each other.
            run_s: that a run takes, in which several may have their turn.
        """
        short_s = max(_SHORT_S, _SHORT_TURNS * turn_s, _SHORT_RUNS * run_s)
        return cls(short_s, max(_LONG_S, 2 * short_s, _LONG_TURNS * turn_s), max(_BURST_S, _BURST_TURNS * turn_s))

    @property
    def behind_s(self) -> float:
        """How much sooner who comes too early must have its turn."""
        return _BEHIND * self.short_s


class Pressure:
    """Asked about every request that comes, in the order of time. Times are seconds of one clock, whichever it is.

    Attributes:
        is_high: whether newcomers may wait a short time only.
    """

    def __init__(self) -> None:
        self.is_high = False
        self._long_since: float | None = None
        self._refused_at = 0.0
        self._trial_at = 0.0
        self._pause_s = _TRIAL_S[0]
        self._ended_at = float("-inf")

    def admits(self, wait_s: float, marks: Marks, now: float) -> bool:
        """Whether a request may wait so long."""
        if self.is_high and not self._ends(marks, now):
            limit_s = marks.short_s if now < self._trial_at else marks.long_s
            if wait_s <= limit_s:
                return True
            if now >= self._trial_at:
                self._pause_s = min(2 * self._pause_s, _TRIAL_S[1])
                self._trial_at = now + self._pause_s
            self._refused_at = now
            return False
        if wait_s <= marks.long_s:
            self._long_since = None
            return True
        if self._long_since is None:
            self._long_since = now
        if now - self._long_since < marks.burst_s:
            return True
        self._begin(now)
        return False

    def _begin(self, now: float) -> None:
        self.is_high, self._refused_at = True, now
        if now - self._ended_at > _TRIAL_S[1]:
            self._pause_s = _TRIAL_S[0]
        self._trial_at = now + self._pause_s

    def _ends(self, marks: Marks, now: float) -> bool:
        """Whether there is no reason any more: nobody was refused for long, or none of a trial's."""
        if now - self._refused_at > max(_CALM_S, marks.burst_s) or now - self._trial_at > marks.burst_s:
            self.is_high, self._long_since, self._ended_at = False, None, now
        return not self.is_high
