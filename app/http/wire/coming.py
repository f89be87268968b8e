"""What a client sends: where in its request it is, how much has come, and since when."""

from __future__ import annotations

from typing import Final

from app.http.door import Limits

# What the framing of a chunk may take beside its bytes: its length, and an extension nobody needs.
_FRAMING: Final = 16
_TRAILERS: Final = 16 * 1024


class Coming:
    """One connection's request, as its bytes come.

    Attributes:
        in_head: whether it is in its head, from the first byte on or still without one; else in its body.
        head_bytes: of the head, so far.
        raw: bytes of the body with all that is around it; of a connection that reads no more, what came since.
        payload: those that are the body's own.
        since: when this began.
    """

    __slots__ = ("_limits", "_pieces", "head_bytes", "in_head", "payload", "raw", "since")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.in_head, self.head_bytes = True, 0
        self.raw = self.payload = self._pieces = 0
        self.since = 0.0

    def begins(self) -> None:
        """The first byte of a request; it may have come with the end of the one before."""
        self.head_bytes = self.head_bytes or 1

    def has_head(self, now: float) -> None:
        """Its head is there, and its body begins."""
        self.in_head, self.head_bytes = False, 0
        self.restarts(now)

    def restarts(self, now: float) -> None:
        """What has come of the body says nothing of what comes from now on."""
        self.raw = self.payload = self._pieces = 0
        self.since = now

    def has_piece(self, count: int) -> None:
        """The parser has found so many bytes of the body."""
        self.payload += count
        self._pieces += 1

    def passed(self, count: int) -> None:
        """So many bytes of the body have come past the parser."""
        self.raw += count
        self.payload += count

    def ends(self) -> None:
        """It is complete; the next one may begin."""
        self.in_head, self.head_bytes = True, 0

    @property
    def is_framing(self) -> bool:
        """Whether there is more around the pieces of the body than there may be."""
        return self.raw - self.payload > _TRAILERS + _FRAMING * self._pieces

    def is_head_late(self, now: float, *, is_first: bool) -> bool:
        """Whether a head, or its first byte, has been waited for long enough.

        is_first: whether none came before it.
        """
        is_between = not self.head_bytes and not is_first
        return now - self.since > (self._limits.keep_alive_s if is_between else self._limits.header_timeout_s)

    def is_body_late(self, now: float) -> bool:
        """Whether a body comes more slowly than it may."""
        limits, took = self._limits, now - self.since
        allowed = took - limits.header_timeout_s
        return took > limits.body_timeout_s or (allowed > 0 and self.raw < allowed * limits.rate)
