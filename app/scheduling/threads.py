"""Threads that wait to be woken when there is something to do, and see for themselves what."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeAlias

Step: TypeAlias = Callable[[], None]


class Threads:
    """Started when they are first needed.

    Args:
        name: of the threads.
        limit: how many there are, at most.
        lock: whoever wakes one holds it, and ``take`` is called with it held.
        take: gives what is to be done next; None for nothing. What it gives must not raise.
    """

    def __init__(self, name: str, limit: int, lock: threading.Lock, take: Callable[[], Step | None]) -> None:
        self._name = name
        self._limit = limit
        self._lock = lock
        self._take = take
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._count = 0
        self._idle = 0
        self._is_closed = False

    def wake(self) -> None:
        """There is something to do. Threads that are at work look for more before they rest.

        Raises:
            RuntimeError: there is no thread, and the system has none for us.
        """
        if self._idle:
            self._idle -= 1
            self._bell.put(None)
        elif self._count < self._limit:
            self._start()

    def close(self) -> None:
        """No thread stays once there is nothing to do."""
        self._is_closed = True
        for _ in range(self._idle):
            self._bell.put(None)
        self._idle = 0

    @property
    def busy(self) -> int:
        """How many are at work."""
        return self._count - self._idle

    def _start(self) -> None:
        self._count += 1
        try:
            # Daemons: one that is stuck in a run must not keep the process from ending.
            threading.Thread(target=self._live, name=f"{self._name}_{self._count}", daemon=True).start()
        except RuntimeError:
            self._count -= 1
            if not self._count:
                raise

    def _live(self) -> None:
        while True:
            with self._lock:
                step = self._take()
                if step is None:
                    if self._is_closed:
                        self._count -= 1
                        return
                    self._idle += 1
            if step is None:
                self._bell.get()
            else:
                step()
                del step  # what it holds is not for a thread that rests
