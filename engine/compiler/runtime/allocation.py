"""Blocks of memory, zeroed; those of arenas in large pages where the system has them.

A network walks through megabytes in every run. With pages of 4 KiB their addresses do not fit the processor's tables,
and every page costs a look-up; pages of 2 MiB make that disappear.
"""

from __future__ import annotations

import mmap
from typing import Final

import numpy as np

from engine.compiler.storage import ALIGNMENT
from engine.errors import CompileMemoryError
from engine.tensor import Array

LARGE_PAGE: Final = 2 << 20
_FLAGS: Final = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


def allocate(count: int) -> Array:
    """So many zeroed bytes that begin on a page, a large one if there are enough of them to fill one.

    They are private: a forked process has its own, and does not write into its parent's.

    Raises:
        CompileMemoryError: there is not so much memory.
    """
    if count < LARGE_PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.frombuffer(_mapped(max(count, 1)), np.uint8)
    block = _mapped(count + LARGE_PAGE)
    raw = np.frombuffer(block, np.uint8)
    skip = -raw.ctypes.data % LARGE_PAGE
    # The rest would be one more large page, most of which nobody needs.
    block.madvise(mmap.MADV_HUGEPAGE, skip, count - count % LARGE_PAGE)
    return raw[skip : skip + count]


def _mapped(count: int) -> mmap.mmap:
    try:
        return mmap.mmap(-1, count, flags=_FLAGS)
    except (OSError, OverflowError, MemoryError):
        raise CompileMemoryError("there is not so much memory", found=f"{count:,} bytes") from None


def aligned_bytes(count: int) -> Array:
    """A zeroed block of memory that begins on a cache line."""
    raw = np.zeros(count + ALIGNMENT, np.uint8)
    skip = -raw.ctypes.data % ALIGNMENT
    return raw[skip : skip + count]
