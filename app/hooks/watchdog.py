"""Watchdog: interrupts functions of users that do not end before their request's deadline.

Python cannot end a thread, but raise an exception in it. A function that waits within C code, as in ``time.sleep``,
is interrupted when it returns to Python; until then it occupies one of the threads of its model.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Final, TypeVar

from app.errors import DeadlineExceededError
from app.memory.reservation import Reservation, current

T = TypeVar("T")
# Interval at which requests are checked for their deadline.
_CHECK_S: Final = 0.1


class InterruptedByDeadline(BaseException):  # not an error of the function; its handlers should not see it
    """Raised in a function that has not ended in time."""


class Watchdog:
    """Calls of functions, each for the request of its thread; one background thread watches all of them."""

    def __init__(self) -> None:
        self._running: dict[int, Reservation] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def call(self, work: Callable[[], T]) -> T:
        """Return the result of a function.

        Raises:
            DeadlineExceededError: it did not end in time, or the client has left.
        """
        reservation = current()
        if reservation is None:
            return work()
        thread = threading.get_ident()
        try:
            self._enter(thread, reservation)
            try:
                return work()
            finally:
                self._leave(thread)
        except InterruptedByDeadline:  # raised at most once, also if it comes while the call ends
            self._leave(thread)
            raise DeadlineExceededError("the request was not answered within its time") from None

    def _enter(self, thread: int, reservation: Reservation) -> None:
        with self._changed:
            self._running[thread] = reservation
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="hooks", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _leave(self, thread: int) -> None:
        with self._changed:
            self._running.pop(thread, None)

    def _watch(self) -> None:
        while True:
            with self._changed:
                while not self._running:
                    self._changed.wait()
                for thread, reservation in list(self._running.items()):
                    if reservation.is_cancelled:
                        del self._running[thread]
                        ctypes.pythonapi.PyThreadState_SetAsyncExc(
                            ctypes.c_ulong(thread), ctypes.py_object(InterruptedByDeadline)
                        )
                self._changed.wait(_CHECK_S)


WATCHDOG: Final = Watchdog()
