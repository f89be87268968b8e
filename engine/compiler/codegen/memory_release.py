"""Release of memory that LLVM keeps after compiling.

A process compiles for a second and runs for days. The C library keeps freed memory in fragments, and some 70 MB of
LLVM itself stay resident; they are pages of a file and are read again on the next call.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np

_NAME: Final = "llvm"
_MAPS: Final = Path("/proc/self/maps")
_PAGES: Final = Path("/proc/self/pagemap")
# Bits of /proc/self/pagemap: the page is in memory, was swapped out, belongs to a file.
_PRESENT, _SWAPPED, _OF_FILE = (np.uint64(1 << bit) for bit in (63, 62, 61))


def release_unused() -> None:
    """Release freed memory and unmodified pages of LLVM, where the system reports them."""
    trim_heap()
    libc = ctypes.CDLL(None)
    with suppress(OSError, AttributeError):
        for begin, end in library_pages():
            if is_unwritten(begin, end):
                libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), mmap.MADV_DONTNEED)


def trim_heap() -> None:
    """Release freed memory that the C library keeps."""
    with suppress(AttributeError):  # musl, macOS
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))


def library_pages(name: str = _NAME) -> Iterator[tuple[int, int]]:
    """Yield the private, read-only mappings of files with such a name.

    Raises:
        OSError: the system does not report mappings.
    """
    for line in _MAPS.read_text(errors="replace").splitlines():
        if name not in line:  # few of hundreds do
            continue
        addresses, rights, *_, path = line.split(maxsplit=5) if line.count(" ") >= 5 else ("", "", "")
        if rights[:2] == "r-" and rights[3:] == "p" and path.startswith("/") and name in os.path.basename(path):
            begin, end = (int(each, 16) for each in addresses.split("-"))
            yield begin, end


def is_unwritten(begin: int, end: int) -> bool:
    """Return whether no page in memory was modified: changes by the dynamic loader would be lost.

    Raises:
        OSError: the system does not report pages.
    """
    count = (end - begin) // mmap.PAGESIZE
    with open(_PAGES, "rb", buffering=0) as file:
        found = np.frombuffer(os.pread(file.fileno(), 8 * count, begin // mmap.PAGESIZE * 8), np.uint64)
    is_there = (found & (_PRESENT | _SWAPPED)) != 0
    return len(found) == count and not bool((is_there & ((found & _OF_FILE) == 0)).any())
