"""What is known of a machine that was measured: what a core does in a second, and what memory of each level brings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from engine.compiler.measuring.caches import Caches

NAMES: Final = ("products", "chained", "repeats", "second", "last", "memory", "memory_shared")
"""The rates of Rates that every machine has."""
DISTANCES: Final = (256, 512, 1024, 2048, 4096)
"""How far ahead of its use memory is fetched, in bytes."""
STRANDS: Final = 4
"""In how many places memory is read in turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Rates of one core, a second.

    Args:
        caches: as the system tells of them.
        threads: how many cores measured memory at once for ``memory_shared``.
        products: of two vectors, on registers, none of which waits for another.
        chained: of two vectors, each of which waits for the one before.
        repeats: numbers of the first-level cache that are put in all lanes of a vector.
        second, last, memory: bytes read from the second-level and the last-level cache, and from memory.
        memory_shared: bytes from memory where all cores read at once.
        fetched: bytes from memory by a row times a matrix that fetches DISTANCES ahead; or empty.
        stranded: the same where every panel of the matrix is read in STRANDS places in turns.
    """

    caches: Caches
    threads: int
    products: float
    chained: float
    repeats: float
    second: float
    last: float
    memory: float
    memory_shared: float
    fetched: tuple[float, ...] = ()
    stranded: tuple[float, ...] = ()
