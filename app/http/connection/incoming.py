"""What a client sends: where in its request it is, how many bytes have come, and since when."""

from __future__ import annotations

from typing import Final

from app.http.connection.admission import Limits

# Bytes that the framing of one chunk may take: its length, and chunk extensions (RFC 9112 section 7.1).
_FRAMING: Final = 16
_TRAILERS: Final = 16 * 1024


class Incoming:
    """One connection's request, as its bytes come.

    Attributes:
        in_head: whether the head is being received, or not even its first byte has come; else the body is.
        head_bytes: bytes of the head so far.
        raw: bytes of the body so far, framing included; once nothing is read any more, bytes that were dropped.
        payload: bytes of the body so far, without framing.
        since: when this head or body began, by the event loop's clock.
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
        """The head is complete, and the body begins."""
        self.in_head, self.head_bytes = False, 0
        self.restarts(now)

    def restarts(self, now: float) -> None:
        """Count from zero: how fast the body came so far says nothing of how fast it will."""
        self.raw = self.payload = self._pieces = 0
        self.since = now

    def has_piece(self, count: int) -> None:
        """The parser has found a piece of the body, so many bytes long."""
        self.payload += count
        self._pieces += 1

    def passed(self, count: int) -> None:
        """So many bytes of the body were read without the parser."""
        self.raw += count
        self.payload += count

    def ends(self) -> None:
        """The request is complete; the next one may begin."""
        self.in_head, self.head_bytes = True, 0

    @property
    def is_framing(self) -> bool:
        """Whether there is more framing than so many pieces need: an attack by tiny chunks or endless trailers."""
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
