"""Refusals held back for a moment, so that a client which asks again at once is refused no more often than that.

Clients that do not wait answer each refusal with the next request, and the processor time that refusals take is lost to
models. A few are sent at a time, evenly spread, so that neither this event loop nor a client's has all of them at once.
The first refusal after a quiet while is sent at once.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from typing import Final

# How long a refusal is held back, and how often some are sent.
HELD_S: Final = 0.025
_STEP_S: Final = 0.005


class Pacing:
    """The refusals of one event loop, timed by its clock."""

    def __init__(self) -> None:
        self._held: deque[tuple[float, Callable[[], None]]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._last = float("-inf")

    def __len__(self) -> int:
        return len(self._held)

    def join(self, say: Callable[[], None]) -> None:
        """Call ``say``, which sends one refusal: now, or when its turn comes."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if not self._held and now - self._last >= HELD_S:
            self._last = now
            say()
            return
        self._held.append((now + HELD_S, say))
        if self._timer is None:
            self._timer = loop.call_later(_STEP_S, self._step)

    def _step(self) -> None:
        loop = asyncio.get_running_loop()
        self._last = now = loop.time()
        # As many as come while one is held back; but none for longer.
        for _ in range(math.ceil(len(self._held) * _STEP_S / HELD_S)):
            self._held.popleft()[1]()
        while self._held and self._held[0][0] <= now:
            self._held.popleft()[1]()
        self._timer = loop.call_later(_STEP_S, self._step) if self._held else None
