"""What is measured of a machine: what a core does in a second, and what memory of every level brings it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from engine.compiler.codegen.host import Host
from engine.compiler.measuring import probes
from engine.compiler.measuring.caches import Caches, find_caches
from engine.compiler.measuring.others import OtherWork
from engine.compiler.measuring.peak import products_a_second
from engine.compiler.measuring.timing import Probe, slowest_of
from engine.resources import available_cores, free_memory_bytes

# Of each measurement; the fastest turn counts, and a turn is half a millisecond.
_SECONDS: Final = 0.02
# What is walked through for the last level, where it is as large, and for memory.
_LAST_BYTES: Final = 8 << 20
_MEMORY_BYTES: Final = (32 << 20, 128 << 20)
# Of the memory that is free, what measuring may take; threads that share memory, at most.
_FREE_SHARE: Final = 1 / 8
_MOST_THREADS: Final = 8
# Of all cores, what others may take of a machine that counts as quiet.
_QUIET: Final = 0.1


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
        is_quiet: whether hardly anything else ran meanwhile.
        times: how often it was measured.
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
    is_quiet: bool = True
    times: int = 1

    def best_with(self, other: Rates) -> Rates:
        """The higher one of each rate: a machine looks slower than it is, never faster."""
        names = ("products", "chained", "repeats", "second", "last", "memory", "memory_shared")
        higher = {name: max(getattr(self, name), getattr(other, name)) for name in names}
        return replace(self, **higher, is_quiet=self.is_quiet or other.is_quiet, times=self.times + other.times)


def measure(host: Host, caches: Caches | None = None, seconds: float = _SECONDS) -> Rates:
    """Measure this machine, in a few tenths of a second.

    Args:
        host: whose vectors are measured.
        seconds: for each number.

    Raises:
        CompileError: there is no generator for this processor, or no memory to measure.
    """
    caches = caches or find_caches()
    memory = host.memory
    some = np.full(4 * probes.REPEATS, 0.5, np.float32)
    threads = min(available_cores(), _MOST_THREADS)
    large = _memory_bytes(caches, threads)

    def read(size: int, threads: int = 1) -> float:
        probe = Probe("read", probes.walk("read", size, host), host)
        return size * slowest_of(probe, size, seconds, threads)

    others = OtherWork()
    alone = read(large)
    rates = Rates(
        caches=caches,
        threads=threads,
        products=products_a_second(host, seconds),
        chained=probes.CHAIN * Probe("chain", probes.chain(host), host).turns_a_second(some, seconds),
        repeats=probes.REPEATS * Probe("repeats", probes.repeats(host), host).turns_a_second(some, seconds),
        second=read(_whole(caches.second or memory.second_bytes) // 2),
        last=read(min(_LAST_BYTES, _whole(caches.last) // 2)) if caches.last else alone,
        memory=alone,
        memory_shared=read(large, threads) if threads > 1 else alone,
    )
    return replace(rates, is_quiet=others.share() < _QUIET)


def _whole(size: int) -> int:
    """A multiple of what a walk takes at a time."""
    return max(1 << 17, size - size % (1 << 16))


def _memory_bytes(caches: Caches, threads: int) -> int:
    least, most = _MEMORY_BYTES
    wanted = min(max(4 * caches.last, least), most)
    return _whole(min(wanted, int(_FREE_SHARE * free_memory_bytes()) // threads))
