"""How much memory there is for this process, and giving back to the system what is no longer used.

glibc keeps freed memory for the next request, and numpy's large arrays are mapped anew each time, which triples the
cost of receiving one: so the heap is told to keep some (``keep_heap``), and to give back the rest after a request that
took much (``Trimmer``). On other systems both do nothing.
"""

from __future__ import annotations

import ctypes
import os
import resource
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

# The part of the memory there is that requests may take; the rest is for weights, code, arenas and everybody else.
SHARE: Final = 1 / 4

_UNLIMITED: Final = 1 << 60
# Where nothing can be found out.
_ASSUMED: Final = 4 << 30
_LEAST: Final = 64 << 20

_M_TRIM_THRESHOLD: Final = -1
_M_TOP_PAD: Final = -2
_M_MMAP_THRESHOLD: Final = -3
_KEPT: Final = 64 << 20
# Arrays from this size on are mapped by themselves, and gone when they are freed. glibc's own limit of it.
_MAPPED: Final = 32 << 20
# Requests that took less are not worth a look at the whole heap.
_LARGE: Final = 32 << 20
_PAUSE_S: Final = 1.0


def budget_bytes(setting: int | None, workers: int = 1) -> int:
    """The bytes that requests of one server process may take; setting is the user's own limit for all of them."""
    total = setting if setting is not None else max(_LEAST, int(available_bytes() * SHARE))
    return max(1, total // workers)


def available_bytes(
    meminfo: Path = Path("/proc/meminfo"),
    proc: Path = Path("/proc/self/cgroup"),
    root: Path = Path("/sys/fs/cgroup"),
) -> int:
    """The machine's memory, or less where the control group, or a limit of the process, says so."""
    limits = [*_machine(meminfo), *_groups(proc, root), *_process()]
    return min((limit for limit in limits if 0 < limit < _UNLIMITED), default=_ASSUMED)


def keep_heap() -> None:
    """Let glibc's heap keep what requests free, up to a bound; what the user set in the environment stands."""
    libc = _libc()
    if libc is None:
        return
    settings = (
        (_M_TOP_PAD, "MALLOC_TOP_PAD_", _KEPT),
        (_M_TRIM_THRESHOLD, "MALLOC_TRIM_THRESHOLD_", 2 * _KEPT),
        (_M_MMAP_THRESHOLD, "MALLOC_MMAP_THRESHOLD_", _MAPPED),
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

    def __call__(self, held: int) -> None:
        """A request is over that held so many bytes."""
        if held < _LARGE or self._libc is None:
            return
        with self._lock:
            if self._is_due:
                return
            self._is_due = True
        threading.Thread(target=self._trim, daemon=True, name="trim").start()

    def _trim(self) -> None:
        time.sleep(_PAUSE_S)  # the answer is still being sent; and requests that follow each other are one
        with self._lock:
            self._is_due = False
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


def _machine(meminfo: Path) -> Iterator[int]:
    for line in _read(meminfo).splitlines():
        if line.startswith("MemTotal:"):
            yield int(line.split()[1]) * 1024


def _groups(proc: Path, root: Path) -> Iterator[int]:
    for line in _read(proc).splitlines():
        hierarchy, controllers, path = line.split(":", 2)
        inside = Path(path.lstrip("/"))
        for group in (inside, *inside.parents):
            if hierarchy == "0":
                yield _number(_read(root / group / "memory.max"))
            elif "memory" in controllers.split(","):
                yield _number(_read(root / "memory" / group / "memory.limit_in_bytes"))


def _process() -> Iterator[int]:
    """Limits of addresses count what is mapped already, weights and libraries among it."""
    mapped = int((_read(Path("/proc/self/statm")).split() or ["0"])[0]) * resource.getpagesize()
    for name in ("RLIMIT_AS", "RLIMIT_DATA"):
        limit = resource.getrlimit(getattr(resource, name))[0]
        if limit != resource.RLIM_INFINITY:
            yield max(1, limit - mapped)


def _number(text: str) -> int:
    stripped = text.strip()
    return int(stripped) if stripped.isdigit() and len(stripped) < 20 else 0


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
