"""Memory of programs: zeroed blocks, arenas that runs write into, and pages of weights that are given back.

Blocks of arenas use large pages where the system has them. A network walks through megabytes in every run: with pages
of 4 KiB the addresses do not fit the processor's TLB, and with pages of 2 MiB they do.

An instance whose shapes recur has an arena of its own. Where inputs come in many shapes each shape runs seldom, and
separate arenas would take most of the memory. Instances of such a graph share a pool with one arena a concurrent run.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from engine.compiler.codegen.memory_release import trim_heap
from engine.compiler.storage import ALIGNMENT
from engine.errors import CompileMemoryError
from engine.graph import RuntimeGraph
from engine.memory import blocks
from engine.tensor import Array

LARGE_PAGE: Final = 2 << 20
_FLAGS: Final = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_ADDRESS_OF, _BUFFER_OF = ctypes.addressof, ctypes.c_char.from_buffer
_NUMBERS: Final = itertools.count(1)
_GROWTH: Final = 2
"""Size of a new arena divided by what its first run takes: few larger shapes need another, whose pages are all new."""


def allocate(count: int) -> Array:
    """Return so many zeroed bytes that begin on a page, a large page if they fill one.

    They are private: a forked process does not write into its parent's.

    Raises:
        CompileMemoryError: there is not enough memory.
    """
    if count < LARGE_PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.frombuffer(_mapped(max(count, 1)), np.uint8)
    block = _mapped(count + LARGE_PAGE)
    raw = np.frombuffer(block, np.uint8)
    skip = -raw.ctypes.data % LARGE_PAGE
    # The rest would take one more large page, mostly unused.
    block.madvise(mmap.MADV_HUGEPAGE, skip, count - count % LARGE_PAGE)
    return raw[skip : skip + count]


def _mapped(count: int) -> mmap.mmap:
    try:
        return mmap.mmap(-1, count, flags=_FLAGS)
    except (OSError, OverflowError, MemoryError):
        raise CompileMemoryError("there is not enough memory", found=f"{count:,} bytes") from None


def aligned_bytes(count: int) -> Array:
    """Return a zeroed block of memory that begins on a cache line."""
    raw = np.zeros(count + ALIGNMENT, np.uint8)
    skip = -raw.ctypes.data % ALIGNMENT
    return raw[skip : skip + count]


def address_of(array: Array) -> int:
    """Return the address of an array's first byte."""
    try:
        return _ADDRESS_OF(_BUFFER_OF(array))  # type: ignore[arg-type]  # an array is a buffer
    except (TypeError, ValueError, BufferError):  # read-only, not contiguous or empty: numpy's interface is slower
        return int(array.__array_interface__["data"][0])


@dataclass(slots=True, eq=False)
class Arena:
    """Block of memory that runs write into.

    Args:
        size: bytes of the block.
        words: the block as int32.
        user: the instance that wrote to it last, as ``new_user`` numbers them; 0 for none.
        used: most bytes that a run has taken; the pages behind them are untouched and take no memory.
    """

    block: Array
    address: int
    size: int
    words: memoryview
    user: int = 0
    used: int = 0


NO_ARENA: Final = Arena(np.empty(0, np.uint8), 0, 0, memoryview(b""))
"""Arena of an instance that does not run."""


def new_user() -> int:
    """Return a number that no other instance has."""
    return next(_NUMBERS)


def new_arena(size: int) -> Arena:
    """Return an arena of so many bytes.

    Raises:
        CompileError: there is not enough memory.
    """
    block = allocate(size)
    return Arena(block, address_of(block), block.size, block[: block.size // 4 * 4].view(np.int32).data)


class Arenas:
    """Pool of arenas that instances take for a run; safe for many threads.

    Args:
        limit: bytes that may be idle.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._idle: list[Arena] = []  # the one used last is last
        self._idle_bytes = 0

    def take(self, size: int, user: int, clean: Sequence[tuple[int, int]]) -> Arena:
        """Return an arena of at least so many bytes, as this user left it.

        Args:
            clean: byte ranges to zero if another instance has used it.

        Raises:
            CompileError: there is not enough memory.
        """
        with self._lock:
            # The user's own, else one that is large enough, else any; of several, the one used last.
            idle = reversed(self._idle)
            arena = max(idle, key=lambda each: (each.user == user, each.size >= size), default=None)
            if arena is not None:
                self._idle.remove(arena)
                self._idle_bytes -= arena.used
        if arena is None or arena.size < size:
            del arena  # release its memory first
            arena = new_arena(_GROWTH * size)
        elif arena.user != user:
            for first, last in clean:
                arena.block[first:last] = 0
        arena.user, arena.used = user, max(arena.used, size)
        return arena

    def give(self, arena: Arena) -> None:
        """Return an arena to the pool."""
        with self._lock:
            if arena.used + self._idle_bytes <= self._limit:
                self._idle.append(arena)
                self._idle_bytes += arena.used

    def has_idle(self, size: int) -> bool:
        """Return whether a run of so many bytes would find an arena."""
        return any(each.size >= size for each in [*self._idle])

    def close(self) -> None:
        """Release the idle arenas."""
        with self._lock:
            self._idle.clear()
            self._idle_bytes = 0


def release(graph: RuntimeGraph) -> None:
    """Release the pages of the blocks that hold the graph's weights.

    They count as the process's own once it has read them, and the system may drop them at once: a weight that is read
    again is still in its file or shared block. Weights that were copied into memory stay, except the aligned copies of
    layers.
    """
    has_freed = False
    for op in graph.operators:
        if op.layer is not None:
            has_freed |= op.layer.forget_copies()
        for attribute in op.attributes.values():
            blocks.release(attribute.data)
    if has_freed:
        trim_heap()
