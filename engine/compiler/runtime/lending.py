"""A lock that whoever compiles lends to others while LLVM works, for what it guards is not needed meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_held = threading.local()


@contextmanager
def lending(lock: threading.Lock) -> Iterator[None]:
    """Hold a lock that ``lent`` gives to others for a while, in this thread."""
    before = getattr(_held, "lock", None)
    with lock:
        _held.lock = lock
        try:
            yield
        finally:
            _held.lock = before


@contextmanager
def lent() -> Iterator[None]:
    """While this thread waits for something that others may go on beside; nothing is lent where it holds nothing."""
    lock: threading.Lock | None = getattr(_held, "lock", None)
    if lock is None:
        yield
        return
    lock.release()
    try:
        yield
    finally:
        lock.acquire()
