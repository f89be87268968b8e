"""Memory of the process: the heap, the garbage collector, and memory that is returned to the system.

glibc returns freed memory to the system and maps each large array anew, which triples the cost of receiving one. So the
heap is configured to keep some memory (``configure_malloc``), and the rest is returned after requests that took much
(``Trimmer``). On other systems both do nothing.
"""

from __future__ import annotations

import ctypes
import gc
import os
import threading
import time
from pathlib import Path
from typing import Any, Final

import engine

# Share of the machine's memory that requests may take; the rest is for weights, code, arenas and other processes.
SHARE: Final = 1 / 4

_LEAST: Final = 64 << 20

_M_TRIM_THRESHOLD: Final = -1
_M_TOP_PAD: Final = -2
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_KEPT: Final = 64 << 20
# Arrays from this size on are mapped separately and unmapped when freed; the largest value glibc allows.
_MAPPED: Final = 32 << 20
# Trimming scans the whole heap: requests below _LARGE do not count, and those above are summed up to _TOGETHER.
_LARGE: Final = 1 << 20
_TOGETHER: Final = 64 << 20
_PAUSE_S: Final = 1.0
# Alignment of values for kernels and every dtype: a cache line.
_LINE: Final = 64
# bytearray(n) without writing zeros, which would take as long as a run of many a model.
_new: Any = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_char_p, ctypes.c_ssize_t)(
    ("PyByteArray_FromStringAndSize", ctypes.pythonapi)
)
_REST_S: Final = 60.0
_STATM: Final = Path("/proc/self/statm")
_next_freeze_at: float | None = None


def budget_bytes(setting: int | None, workers: int = 1) -> int:
    """Return the bytes that requests of one process may take; setting is the user's limit for all workers together."""
    total = setting if setting is not None else max(_LEAST, int(engine.total_memory_bytes() * SHARE))
    return max(1, total // workers)


def configure_malloc() -> None:
    """Let glibc's heap keep freed memory up to a bound, unless the environment configures it."""
    libc = _libc()
    if libc is None:
        return
    settings = (
        (_M_TOP_PAD, "MALLOC_TOP_PAD_", _KEPT),
        (_M_TRIM_THRESHOLD, "MALLOC_TRIM_THRESHOLD_", 2 * _KEPT),
        (_M_MMAP_THRESHOLD, "MALLOC_MMAP_THRESHOLD_", _MAPPED),
        # One arena: those of other threads keep free memory at their top, which malloc_trim does not return.
        (_M_ARENA_MAX, "MALLOC_ARENA_MAX", 1),
    )
    for parameter, name, value in settings:
        if name not in os.environ and "GLIBC_TUNABLES" not in os.environ:
            libc.mallopt(parameter, value)


class Trimmer:
    """Returns free memory to the system soon after requests that took much, in a thread and with pauses."""

    def __init__(self) -> None:
        self._libc = _libc()
        self._lock = threading.Lock()
        self._is_due = False
        self._held = 0

    def __call__(self, held: int) -> None:
        """Count a request that has ended and held so many bytes."""
        if held < _LARGE or self._libc is None:
            return
        with self._lock:
            self._held += held
            if self._is_due or self._held < _TOGETHER:
                return
            self._is_due = True
        threading.Thread(target=self._trim, daemon=True, name="trim").start()

    def _trim(self) -> None:
        time.sleep(_PAUSE_S)  # the answer is still being sent, and one trim serves a series of requests
        with self._lock:
            self._is_due = False
            self._held = 0
        if self._libc is not None:
            self._libc.malloc_trim(0)


def resident_bytes() -> int | None:
    """Return the resident memory of the process; None on other systems than Linux, or without a file descriptor."""
    try:
        return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _libc() -> Any:
    try:
        libc = ctypes.CDLL(None)
        _ = (libc.malloc_trim, libc.mallopt)
    except (OSError, AttributeError):  # musl, macOS
        return None
    libc.malloc_trim.argtypes, libc.mallopt.argtypes = (ctypes.c_size_t,), (ctypes.c_int, ctypes.c_int)
    return libc


def uninitialised(count: int, values_at: int = 0) -> bytearray:
    """Return a bytearray whose content is undefined; the caller writes all of it before it is read.

    Args:
        count: number of bytes.
        values_at: index of the byte that is aligned to a cache line.
    """
    block: bytearray = _new(None, count + _LINE)
    before = -(ctypes.addressof(ctypes.c_char.from_buffer(block)) + values_at) % _LINE
    # Neither moves data: a bytearray stores the offset at which it begins.
    del block[:before]
    del block[count:]
    return block


def freeze_heap() -> None:
    """Exempt all present objects from garbage collections.

    A full collection visits every object and stops everything else: 50 ms with loaded models, while requests wait.
    After a model was replaced, objects are collected again until requests on the old one must have ended.
    """
    global _next_freeze_at
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    _next_freeze_at = None


def collect(rest_s: float = _REST_S) -> None:
    """Collect unreachable cycles, frozen objects included; freezing is due again after rest_s."""
    global _next_freeze_at
    if gc.get_freeze_count():
        gc.unfreeze()
        _next_freeze_at = time.monotonic() + rest_s
    gc.collect()


def freeze_heap_when_due() -> None:
    """Freeze the heap if it is due; called when a pause delays a request least."""
    if _next_freeze_at is not None and time.monotonic() > _next_freeze_at:
        freeze_heap()
