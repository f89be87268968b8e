"""Measured rates of a machine: operations per second of a core, and bytes per second from each level of memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from engine.compiler.measuring.caches import Caches

NAMES: Final = ("products", "chained", "repeats", "second", "last", "memory", "memory_shared")
"""Rates that every machine has."""


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
        ahead_bytes, stream_ahead_bytes: fastest prefetch distance of weights, alone and in streams; 0 if unknown.
        streams: number of places at which weights that are used once are read in turn.
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
    ahead_bytes: int = 0
    streams: int = 1
    stream_ahead_bytes: int = 0
