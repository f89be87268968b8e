"""What LLVM leaves in memory when it has done its work, given back to the system.

A process compiles for a second and runs for days. What was freed meanwhile the C library keeps, in pieces between what
is still used; and some 70 MB of LLVM itself stay, which are pages of a file: whoever calls it again finds them there.
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
# Bits of /proc/self/pagemap: the page is in memory, was swapped out, is a file's.
_PRESENT, _SWAPPED, _OF_FILE = (np.uint64(1 << bit) for bit in (63, 62, 61))


def give_back() -> None:
    """Let the system have what can be had again; nothing where it does not say what there is."""
    give_back_freed()
    libc = ctypes.CDLL(None)
    with suppress(OSError, AttributeError):
        for begin, end in library_pages():
            if is_unwritten(begin, end):
                libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), mmap.MADV_DONTNEED)


def give_back_freed() -> None:
    """Let the system have what was freed and the C library keeps."""
    with suppress(AttributeError):  # musl, macOS
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))


def library_pages(name: str = _NAME) -> Iterator[tuple[int, int]]:
    """Where files with such a name are mapped, privately and not to be written to.

    Raises:
        OSError: the system does not say.
    """
    for line in _MAPS.read_text(errors="replace").splitlines():
        if name not in line:  # of hundreds, few have it
            continue
        place, rights, *_, path = line.split(maxsplit=5) if line.count(" ") >= 5 else ("", "", "")
        if rights[:2] == "r-" and rights[3:] == "p" and path.startswith("/") and name in os.path.basename(path):
            begin, end = (int(each, 16) for each in place.split("-"))
            yield begin, end


def is_unwritten(begin: int, end: int) -> bool:
    """Whether every page in memory is still the file's: what the loader has filled in would be lost.

    Raises:
        OSError: the system does not say.
    """
    count = (end - begin) // mmap.PAGESIZE
    with open(_PAGES, "rb", buffering=0) as file:
        found = np.frombuffer(os.pread(file.fileno(), 8 * count, begin // mmap.PAGESIZE * 8), np.uint64)
    is_there = (found & (_PRESENT | _SWAPPED)) != 0
    return len(found) == count and not bool((is_there & ((found & _OF_FILE) == 0)).any())
