"""Threads of one model, which do the steps of its jobs and sleep in between."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from app.scheduling.run_queue import Step


class Threads:
    """Pool of threads that start when they are first needed.

    Args:
        name: prefix of the threads' names.
        limit: largest number of threads.
        lock: held by callers of ``wake``, and while ``take`` is called.
        take: returns the next step, or None; a step must not raise.
    """

    def __init__(self, name: str, limit: int, lock: threading.Lock, take: Callable[[], Step | None]) -> None:
        self._name = name
        self._limit = limit
        self._lock = lock
        self._take = take
        self._wakeups: SimpleQueue[None] = SimpleQueue()
        self._count = 0
        self._idle = 0
        self._is_closed = False

    def wake(self) -> None:
        """Wake or start a thread for new work. Busy threads look for more work before they sleep.

        Raises:
            RuntimeError: there is no thread, and the system cannot start one.
        """
        if self._idle:
            self._idle -= 1
            self._wakeups.put(None)
        elif self._count < self._limit:
            self._start()

    def close(self) -> None:
        """Let every thread end as soon as it finds no work."""
        self._is_closed = True
        for _ in range(self._idle):
            self._wakeups.put(None)
        self._idle = 0

    @property
    def busy(self) -> int:
        """Return the number of working threads."""
        return self._count - self._idle

    def _start(self) -> None:
        self._count += 1
        try:
            # A daemon: a thread that is stuck in a run must not keep the process from ending.
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
                self._wakeups.get()
            else:
                step()
                del step  # a sleeping thread must not hold a request's memory
