"""What a large text was parsed into, until it is decoded: millions of values, whose release nobody should wait for.

Between parsing and decoding a request may be refused, or its client may go away: then the last reference is dropped on
the event loop, which would stand still while they are freed. So they are handed to a thread that frees them in pieces.
"""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import Any

from app.codec.json.pieces import dismantle
from app.memory.allowance import Allowance, current


class Parsed:
    """A value and the memory it was charged; given back when both are gone."""

    def __init__(self, value: Any) -> None:
        self._value = value
        self._allowance = current()
        if self._allowance is not None:
            self._allowance.share()

    @property
    def value(self) -> Any:
        """What was parsed."""
        return self._value

    def release(self, *, is_even: bool = False) -> None:
        """Free it here and now.

        is_even: as ``dismantle`` has it.
        """
        value, self._value = self._value, None
        allowance, self._allowance = self._allowance, None
        _free(value, allowance, is_even)

    def __del__(self) -> None:
        value, allowance = self._value, self._allowance
        if value is not None or allowance is not None:
            _bin.throw(value, allowance)


class _Bin:
    """A thread that frees what is thrown into it; started when there is something, gone when there is nothing."""

    def __init__(self) -> None:
        # A queue that may be put to from anywhere, a collector's run included.
        self._thrown: SimpleQueue[tuple[Any, Allowance | None]] = SimpleQueue()
        self._lock = threading.Lock()

    def throw(self, value: Any, allowance: Allowance | None) -> None:
        self._thrown.put((value, allowance))
        if self._lock.acquire(blocking=False):
            try:
                threading.Thread(target=self._empty, name="release", daemon=True).start()
            except RuntimeError:  # no more threads, or the interpreter ends
                self._empty()

    def _empty(self) -> None:
        while True:
            try:
                while not self._thrown.empty():
                    _free(*self._thrown.get(), is_even=False)
            finally:
                self._lock.release()
            # Something may have come after the last look and before the lock was open.
            if self._thrown.empty() or not self._lock.acquire(blocking=False):
                return


def _free(value: Any, allowance: Allowance | None, is_even: bool) -> None:
    try:
        dismantle(value, is_even=is_even)
    finally:
        if allowance is not None:
            allowance.close()


_bin = _Bin()
