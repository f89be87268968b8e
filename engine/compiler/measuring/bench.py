"""Measuring a machine, in some tenths of a second: each rate by a probe, in rounds of which the best counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from engine.compiler.codegen.host import Host
from engine.compiler.measuring import probes
from engine.compiler.measuring.caches import Caches, find_caches
from engine.compiler.measuring.rates import NAMES, Rates
from engine.compiler.measuring.timing import Probe, slowest_of, written
from engine.memory.resources import available_cores, free_memory_bytes
from engine.tensor import Array

# Seconds of each measurement in every round; its turns take half a millisecond, and the fastest counts.
_SECONDS: Final = 0.005
# What disturbs one round is over in the next.
_ROUNDS: Final = 3
# What is walked through for the last level, where it is as large, and for memory; of that, a part at a time.
_LAST_BYTES: Final = 8 << 20
_PARTS: Final = 16
_MEMORY_BYTES: Final = (32 << 20, 128 << 20)
# The share of free memory that measuring may take, and the most threads that measure shared memory.
_FREE_SHARE: Final = 1 / 8
_MOST_THREADS: Final = 8


def measure(host: Host, caches: Caches | None = None, seconds: float = _SECONDS) -> Rates:
    """Measure this machine, in a few tenths of a second.

    Args:
        host: whose vectors are measured.
        seconds: for each number, in each round.

    Raises:
        CompileError: there is no generator for this processor, or no memory to measure.
    """
    caches = caches or find_caches()
    threads = min(available_cores(), _MOST_THREADS)
    bench = _Bench(host, caches, threads)
    best = dict.fromkeys(NAMES, 0.0)
    for _ in range(_ROUNDS):
        for name in best:
            best[name] = max(best[name], bench.rates[name](seconds))
    best["memory"] = max(best["memory"], best["memory_shared"])  # a core alone has no less
    # All together have no less than one alone; who finds less was held up, whether that was noticed or not.
    best["memory_shared"] = max(best["memory_shared"], best["memory"] / threads)
    return Rates(caches=caches, threads=threads, fetched=(), stranded=(), **best)


class _Bench:
    """What is run for each rate, and the memory it works on.

    Attributes:
        rates: by name, measured for so many seconds.
    """

    def __init__(self, host: Host, caches: Caches, threads: int) -> None:
        self._host = host
        self._memory = written(_memory_bytes(caches, threads))
        count, whole = probes.chains(host), self._memory.nbytes
        memory = self._walked(_whole(whole // _PARTS), Probe.once_a_second)
        near = self._read(min(_LAST_BYTES, _whole(caches.last) // 2))
        self.rates: Mapping[str, Callable[[float], float]] = {
            "products": self._computed("peak", probes.peak(host, count), count),
            "chained": self._computed("chain", probes.chain(host), probes.CHAIN),
            "repeats": self._computed("repeats", probes.repeats(host), probes.REPEATS),
            "second": self._read(_whole(caches.second or host.memory.second_bytes) // 2),
            "last": near if caches.last else memory,
            "memory": memory,
            "memory_shared": self._walked(_whole(whole // threads), slowest_of),
        }

    def _probe(self, name: str, text: str, host: Host | None = None) -> Probe:
        return Probe(name, text, host or self._host)

    def _computed(self, name: str, text: str, amount: int) -> Callable[[float], float]:
        """What is done on registers, or a few numbers, so many times a turn."""
        # Numbers whose products can be added up for ever: they stay what they are, or end far from infinity.
        probe, halves = self._probe(name, text), np.full(4 * probes.REPEATS, 0.5, np.float32)
        return lambda seconds: amount * probe.turns_a_second(halves, seconds)

    def _read(self, size: int) -> Callable[[float], float]:
        """The same bytes, again and again."""
        size = min(size, self._memory.nbytes)
        probe, memory = self._probe("read", probes.walk("read", size, self._host)), self._memory[: size // 4]
        return lambda seconds: size * probe.turns_a_second(memory, seconds)

    def _walked(self, size: int, rate: Callable[[Probe, Sequence[Array], float], float]) -> Callable[[float], float]:
        """All of the memory, so many bytes at a time."""
        probe, floats = self._probe("read", probes.walk("read", size, self._host)), size // 4
        parts = [self._memory[at : at + floats] for at in range(0, self._memory.size - floats + 1, floats)]
        return lambda seconds: size * rate(probe, parts, seconds)


def _whole(size: int) -> int:
    """A multiple of what a walk takes at a time."""
    return max(1 << 17, size - size % (1 << 16))


def _memory_bytes(caches: Caches, threads: int) -> int:
    least, most = _MEMORY_BYTES
    wanted = min(max(4 * caches.last, least), most, int(_FREE_SHARE * free_memory_bytes()))
    return max(_whole(wanted), threads * _whole(0))
