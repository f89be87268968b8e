"""How fast a client reads its answer."""

from __future__ import annotations

from app.http.connection.admission import Limits


class Outgoing:
    """One connection's answers: since when bytes have been waiting for the client, and how many it has read since."""

    __slots__ = ("_limits", "_paused_at", "_since", "_taken")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._since = 0.0
        # Bytes read since then, and bytes unsent when writing was paused.
        self._taken = self._paused_at = 0

    @property
    def is_slow(self) -> bool:
        """Whether bytes were waiting for the client at the last look."""
        return self._since > 0

    def begins(self) -> None:
        """Another answer begins."""
        self._since = 0.0

    def paused(self, unsent: int, now: float) -> None:
        """Writing is paused, with so many bytes unsent, until the client has read some."""
        self._paused_at = unsent
        if not self._since:
            self._since, self._taken = now, 0

    def resumed(self, unsent: int) -> None:
        """Writing goes on: the client has read most of them."""
        self._taken += self._paused_at - unsent

    def is_too_slow(self, unsent: int, now: float, *, is_paused: bool, is_answered: bool) -> bool:
        """Whether the client has read less of its answer than it should have by now.

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
