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

from engine.compiler.codegen.memory_release import give_back_freed
from engine.compiler.storage import ALIGNMENT
from engine.errors import CompileMemoryError
from engine.graph import RuntimeGraph
from engine.memory import blocks
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


_ADDRESS_OF, _BUFFER_OF = ctypes.addressof, ctypes.c_char.from_buffer


def address_of(array: Array) -> int:
    """Where an array's first byte lies."""
    try:
        return _ADDRESS_OF(_BUFFER_OF(array))  # type: ignore[arg-type]  # an array is a buffer
    except (TypeError, ValueError, BufferError):  # read-only, not in one piece, empty: numpy knows, but takes its time
        return int(array.__array_interface__["data"][0])


_NUMBERS: Final = itertools.count(1)


@dataclass(slots=True, eq=False)
class Arena:
    """A block of memory.

    Args:
        user: who wrote to it last, as ``new_user`` numbers them; 0 for nobody.
    """

    block: Array
    address: int
    user: int = 0


NO_ARENA: Final = Arena(np.empty(0, np.uint8), 0)
"""The arena of an instance that does not run."""


def _rounded(size: int) -> int:
    """A little more, so that not every larger shape needs another one; pages that nobody writes to take no memory."""
    step = 1 << max(0, size.bit_length() - 3)
    return -(-size // step) * step


def new_user() -> int:
    """A number that nobody else has."""
    return next(_NUMBERS)


def new_arena(size: int) -> Arena:
    """An arena of so many bytes.

    Raises:
        CompileError: there is not so much memory.
    """
    block = allocate(size)
    return Arena(block, address_of(block))


class Arenas:
    """Arenas that instances take for a run and give back; many threads may.

    Args:
        limit: bytes that may lie idle.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._idle: list[Arena] = []  # who wrote last is last

    def take(self, size: int, user: int, clean: Sequence[tuple[int, int]]) -> Arena:
        """An arena of so many bytes at least, as this user has left it.

        Args:
            clean: bytes, from and to, that are zero where others have used it.

        Raises:
            CompileError: there is not so much memory.
        """
        arena = self._pick(size, user)
        if arena is None or arena.block.size < size:
            del arena  # its memory first
            arena = new_arena(_rounded(size))
        elif arena.user != user:
            for first, last in clean:
                arena.block[first:last] = 0
        arena.user = user
        return arena

    def give(self, arena: Arena) -> None:
        """Nobody writes to it any more."""
        with self._lock:
            if arena.block.size + sum(each.block.size for each in self._idle) <= self._limit:
                self._idle.append(arena)

    def close(self) -> None:
        """Give back what lies idle."""
        with self._lock:
            self._idle.clear()

    def _pick(self, size: int, user: int) -> Arena | None:
        """The idle arena that suits best: the user's own, else one that is large enough, else any."""
        with self._lock:
            if self._idle and self._idle[-1].user == user:  # as where one shape comes again and again
                return self._idle.pop()
            own = [each for each in self._idle if each.user == user]
            large = [each for each in self._idle if each.block.size >= size]
            for each in (*own, *large, *self._idle):
                self._idle.remove(each)
                return each
            return None


def release(graph: RuntimeGraph) -> None:
    """Give back the pages of the blocks that the graph's weights are part of."""
    has_freed = False
    for op in graph.operators:
        if op.layer is not None:
            has_freed |= op.layer.forget_copies()
        for attribute in op.attributes.values():
            blocks.release(attribute.data)
    if has_freed:
        give_back_freed()
