"""How fast a client takes its answer."""

from __future__ import annotations

from app.http.door import Limits


class Taking:
    """One connection's answers: since when the client has been slow with one, and what it took meanwhile."""

    __slots__ = ("_limits", "_paused_at", "_since", "_taken")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._since = 0.0
        # What it took since then, and what was left when the answer was told to wait for that.
        self._taken = self._paused_at = 0

    @property
    def is_slow(self) -> bool:
        """Whether there was something left when it was looked at last."""
        return self._since > 0

    def begins(self) -> None:
        """Another answer."""
        self._since = 0.0

    def paused(self, unsent: int, now: float) -> None:
        """The answer waits for the client to take some of what there is."""
        self._paused_at = unsent
        if not self._since:
            self._since, self._taken = now, 0

    def resumed(self, unsent: int) -> None:
        """It has taken most of that."""
        self._taken += self._paused_at - unsent

    def is_too_slow(self, unsent: int, now: float, *, is_paused: bool, is_answered: bool) -> bool:
        """Whether the client has taken less of its answer than it should have by now.

        Args:
            is_answered: whether all of the answer was given to the connection.
        """
        if not unsent:
            if is_answered:
                self._since = 0.0
            return False
        if not self._since:
            self._since, self._taken = now, 0
        took = now - self._since
        allowed = took - self._limits.header_timeout_s
        taken = self._taken + (self._paused_at - unsent if is_paused else 0)
        return took > self._limits.answer_timeout_s or (allowed > 0 and taken < allowed * self._limits.rate)
