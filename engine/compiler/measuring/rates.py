"""Measured rates of a machine: operations per second of a core, and bytes per second from each level of memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from engine.compiler.measuring.caches import Caches

NAMES: Final = ("products", "chained", "repeats", "second", "last", "memory", "memory_shared")
"""Rates that every machine has."""
DISTANCES: Final = (256, 512, 1024, 2048, 4096)
"""Prefetch distances, in bytes."""
STREAMS: Final = 4
"""Number of places at which memory is read in turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Rates of one core, per second.

    Args:
        caches: sizes that the operating system reports.
        threads: number of cores that measured ``memory_shared`` at once.
        products: independent products of two vectors on registers.
        chained: products of two vectors that each depend on the previous one.
        repeats: numbers of the first-level cache broadcast to all lanes of a vector.
        second, last, memory: bytes read from the second-level cache, the last-level cache and memory.
        memory_shared: bytes read from memory when all cores read at once.
        fetched: bytes from memory by a row times a matrix, for each prefetch distance in DISTANCES; or empty.
        streamed: the same when every panel of the matrix is read in STREAMS places in turn.
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
    streamed: tuple[float, ...] = ()
