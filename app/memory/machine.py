"""Memory of the process: the heap, the garbage collector, and giving back what is no longer used.

glibc keeps freed memory for the next request, and numpy's large arrays are mapped anew each time, which triples the
cost of receiving one: so the heap is told to keep some (``configure_malloc``), and to give back the rest after a request that
took much (``Trimmer``). On other systems both do nothing.
"""

from __future__ import annotations

import ctypes
import gc
import os
import threading
import time
from typing import Any, Final

import engine

# The part of the memory there is that requests may take; the rest is for weights, code, arenas and everybody else.
SHARE: Final = 1 / 4

_LEAST: Final = 64 << 20

_M_TRIM_THRESHOLD: Final = -1
_M_TOP_PAD: Final = -2
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_KEPT: Final = 64 << 20
# Arrays from this size on are mapped by themselves, and gone when they are freed. glibc's own limit of it.
_MAPPED: Final = 32 << 20
# Requests that took less are not worth a look at the whole heap, nor are a few of those that took more.
_LARGE: Final = 1 << 20
_TOGETHER: Final = 64 << 20
_PAUSE_S: Final = 1.0
# Where kernels and every dtype like values to begin: a line of the caches.
_LINE: Final = 64
# What Python's own bytearray(n) does, but for the zeros, which would take as long as many a model runs.
_new: Any = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_char_p, ctypes.c_ssize_t)(
    ("PyByteArray_FromStringAndSize", ctypes.pythonapi)
)
_REST_S: Final = 60.0
_next_freeze_at: float | None = None


def budget_bytes(setting: int | None, workers: int = 1) -> int:
    """The bytes that requests of one server process may take; setting is the user's own limit for all of them."""
    total = setting if setting is not None else max(_LEAST, int(engine.total_memory_bytes() * SHARE))
    return max(1, total // workers)


def configure_malloc() -> None:
    """Let glibc's heap keep what requests free, up to a bound; what the user set in the environment stands."""
    libc = _libc()
    if libc is None:
        return
    settings = (
        (_M_TOP_PAD, "MALLOC_TOP_PAD_", _KEPT),
        (_M_TRIM_THRESHOLD, "MALLOC_TRIM_THRESHOLD_", 2 * _KEPT),
        (_M_MMAP_THRESHOLD, "MALLOC_MMAP_THRESHOLD_", _MAPPED),
        # Threads' own heaps would each keep what is on top of them, however much is free: malloc_trim looks below only.
        (_M_ARENA_MAX, "MALLOC_ARENA_MAX", 1),
    )
    for parameter, name, value in settings:
        if name not in os.environ and "GLIBC_TUNABLES" not in os.environ:
            libc.mallopt(parameter, value)


class Trimmer:
    """Gives free memory back to the system after requests that took much: soon, in a thread, and not all the time."""

    def __init__(self) -> None:
        self._libc = _libc()
        self._lock = threading.Lock()
        self._is_due = False
        self._held = 0

    def __call__(self, held: int) -> None:
        """A request is over that held so many bytes."""
        if held < _LARGE or self._libc is None:
            return
        with self._lock:
            self._held += held
            if self._is_due or self._held < _TOGETHER:
                return
            self._is_due = True
        threading.Thread(target=self._trim, daemon=True, name="trim").start()

    def _trim(self) -> None:
        time.sleep(_PAUSE_S)  # the answer is still being sent; and requests that follow each other are one
        with self._lock:
            self._is_due = False
            self._held = 0
        if self._libc is not None:
            self._libc.malloc_trim(0)


def _libc() -> Any:
    try:
        libc = ctypes.CDLL(None)
        _ = (libc.malloc_trim, libc.mallopt)
    except (OSError, AttributeError):  # musl, macOS
        return None
    libc.malloc_trim.argtypes, libc.mallopt.argtypes = (ctypes.c_size_t,), (ctypes.c_int, ctypes.c_int)
    return libc


def uninitialised(count: int, values_at: int = 0) -> bytearray:
    """So many bytes that mean nothing: whoever asks for them writes all of them before anybody reads one.

    Args:
        values_at: the byte that begins a line of the processor's caches.
    """
    block: bytearray = _new(None, count + _LINE)
    before = -(ctypes.addressof(ctypes.c_char.from_buffer(block)) + values_at) % _LINE
    # Both move nothing: a bytearray knows where in its memory it begins.
    del block[:before]
    del block[count:]
    return block


def freeze_heap() -> None:
    """Leave what is there now out of garbage collections.

    A full collection looks at every object there is, and nothing else runs meanwhile: 50 ms where models are loaded,
    in the midst of a request. When a model was replaced everything is looked at again, until the last request that ran
    on the old one must have ended.
    """
    global _next_freeze_at
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    _next_freeze_at = None


def collect(rest_s: float = _REST_S) -> None:
    """Free what refers to itself and is no longer used, also of what was set aside; that is due again in rest_s."""
    global _next_freeze_at
    if gc.get_freeze_count():
        gc.unfreeze()
        _next_freeze_at = time.monotonic() + rest_s
    gc.collect()


def freeze_heap_when_due() -> None:
    """Called now and then, where a pause disturbs nobody's request more than another."""
    if _next_freeze_at is not None and time.monotonic() > _next_freeze_at:
        freeze_heap()
