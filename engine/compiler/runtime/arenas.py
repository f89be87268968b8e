"""Memory that runs write into.

An instance whose shapes come again and again has an arena of its own. Where inputs come in many shapes each of them is
seldom run, and arenas of their own would take most of the memory there is: instances of such a graph lend each other
theirs, and there are as many as runs at once.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from engine.compiler.runtime.allocation import allocate
from engine.compiler.runtime.tables import address_of
from engine.tensor import Array

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
