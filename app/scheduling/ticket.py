"""Whether anybody still wants what a thread works on."""

from __future__ import annotations

import time
import traceback


class Ticket:
    """What running work can ask: does anybody still want the result?

    Args:
        deadline: on time.monotonic()'s clock.
    """

    __slots__ = ("_is_abandoned", "deadline")

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self._is_abandoned = False

    def abandon(self) -> None:
        """Nobody waits for it any more."""
        self._is_abandoned = True

    def is_void(self) -> bool:
        """Whether the work may stop."""
        return self._is_abandoned or time.monotonic() > self.deadline


def forget_locals(exc: BaseException | None) -> None:
    """Free what the frames of an exception, and of those behind it, still hold: here, not where it is answered."""
    seen: set[int] = set()
    while exc is not None and id(exc) not in seen:
        seen.add(id(exc))
        traceback.clear_frames(exc.__traceback__)
        exc = exc.__cause__ or exc.__context__
