"""Measurement of a machine in a few tenths of a second: one probe per rate, the best of several rounds."""

from __future__ import annotations

import ctypes
import mmap
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from typing import Any, Final

import numpy as np

from engine.compiler.codegen import object_code
from engine.compiler.codegen.host import Host, detect
from engine.compiler.measuring import probes
from engine.compiler.measuring.caches import Caches, find_caches
from engine.compiler.measuring.cost_parameters import NAMES, Rates
from engine.compiler.runtime.memory import allocate
from engine.memory.resources import available_cores, free_memory_bytes
from engine.tensor import Array

# Short enough to be rarely interrupted, long enough for the clock's resolution.
_TURN_S: Final = 5e-4
_RUN: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
# Seconds of each measurement in every round; a turn takes half a millisecond, and the fastest counts.
_SECONDS: Final = 0.005
# A disturbance rarely lasts longer than one round.
_ROUNDS: Final = 3
# Bytes read to measure the last level (at most half of it) and memory; memory is read in parts.
_LAST_BYTES: Final = 8 << 20
_PARTS: Final = 16
_MEMORY_BYTES: Final = (32 << 20, 128 << 20)
# Share of free memory that measuring may take, and the most threads that measure memory at once.
_FREE_SHARE: Final = 1 / 8
_MOST_THREADS: Final = 8


class Probe:
    """A probe as machine code.

    Args:
        name: of its function.
        text: IR.
    """

    def __init__(self, name: str, text: str, host: Host) -> None:
        self._code = object_code.Code([object_code.assemble(text, host)], host)
        self._run = _RUN(self._code.address(name))
        self._turns = 0

    def turns_a_second(self, memory: Array, seconds: float) -> float:
        """Return the rate of the fastest of many calls.

        Args:
            memory: float32 data for the probe. The first call with it also determines the number of turns per call.
            seconds: how long to measure; at least one call is made.
        """
        self._turns = self._turns or self._enough(memory)
        return self._turns / self._fastest(memory, self._turns, seconds)

    def once_a_second(self, parts: Sequence[Array], seconds: float) -> float:
        """Return the median rate of calls of one turn, each on another part of memory.

        The median ignores parts that are still in a cache, and interruptions.
        """
        return 1 / statistics.median(self._times(parts, 1, seconds, least=len(parts) // 2))

    def _fastest(self, memory: Array, turns: int, seconds: float) -> float:
        return min(self._times([memory], turns, seconds))

    def _times(self, parts: Sequence[Array], turns: int, seconds: float, least: int = 1) -> list[float]:
        times, next_parts = list[float](), cycle(parts)
        end = time.perf_counter() + seconds
        while len(times) < least or time.perf_counter() < end:
            place = next(next_parts).ctypes.data
            start = time.perf_counter()
            self._run(place, turns)
            times.append(time.perf_counter() - start)
        return times

    def _enough(self, memory: Array) -> int:
        """Return a number of turns long enough to time; the calls also warm the caches."""
        turns = 1
        while True:
            took = self._fastest(memory, turns, 0)
            if took > _TURN_S:
                return turns
            turns *= 2


def slowest_of(probe: Probe, memories: Sequence[Array], seconds: float) -> float:
    """Return the rate of the slowest of several threads that run a probe at once, each on its own memory.

    They begin their calls together: the fastest call of each may have been alone.
    """
    probe.turns_a_second(memories[0], 0)  # determines the number of turns per call
    rates, end = list[float](), time.perf_counter() + seconds
    with ThreadPoolExecutor(len(memories)) as pool:
        while not rates or time.perf_counter() < end:
            rates.append(min(pool.map(lambda memory: probe.turns_a_second(memory, 0), memories)))
    return max(rates)


def written(size: int) -> Array:
    """Return zeroed memory whose pages were written, because untouched pages all map to the same zero page."""
    memory = allocate(size).view(np.float32)
    memory[:: mmap.PAGESIZE // 4] = 0
    return memory


def measure(host: Host, caches: Caches | None = None, seconds: float = _SECONDS) -> Rates:
    """Measure this machine, in a few tenths of a second.

    Args:
        host: whose vectors are measured.
        seconds: for each number, in each round.

    Raises:
        CompileError: the processor is not supported, or there is not enough memory.
    """
    caches = caches or find_caches()
    threads = min(available_cores(), _MOST_THREADS)
    bench = _Bench(host, caches, threads)
    best: dict[str, Any] = dict.fromkeys(NAMES, 0.0)
    for _ in range(_ROUNDS):
        for name in best:
            best[name] = max(best[name], bench.rates[name](seconds))
    best["memory"] = max(best["memory"], best["memory_shared"])  # one core alone gets at least as much
    # All cores together get at least as much as one alone; a smaller figure was disturbed.
    best["memory_shared"] = max(best["memory_shared"], best["memory"] / threads)
    return Rates(caches=caches, threads=threads, **best)


class _Bench:
    """Probes for each rate, and the memory they work on.

    Attributes:
        rates: by name, functions that measure for a number of seconds.
    """

    def __init__(self, host: Host, caches: Caches, threads: int) -> None:
        self._host = host
        self._memory = written(_memory_bytes(caches, threads))
        count, whole = probes.chains(host), self._memory.nbytes
        memory = self._walked(_rounded_down(whole // _PARTS), Probe.once_a_second)
        near = self._read(min(_LAST_BYTES, _rounded_down(caches.last) // 2))
        self.rates: Mapping[str, Callable[[float], float]] = {
            "products": self._computed("peak", probes.peak(host, count), count),
            "chained": self._computed("chain", probes.chain(host), probes.CHAIN),
            "repeats": self._computed("repeats", probes.repeats(host), probes.REPEATS),
            "second": self._read(_rounded_down(caches.second or host.memory.second_bytes) // 2),
            "last": near if caches.last else memory,
            "memory": memory,
            "memory_shared": self._walked(_rounded_down(whole // threads), slowest_of),
        }

    def _probe(self, name: str, text: str, host: Host | None = None) -> Probe:
        return Probe(name, text, host or self._host)

    def _computed(self, name: str, text: str, amount: int) -> Callable[[float], float]:
        """Return a probe that repeats an operation on registers or a few numbers ``amount`` times per turn."""
        # Products of 0.5 can be accumulated forever: the sums stop changing long before infinity.
        probe, halves = self._probe(name, text), np.full(4 * probes.REPEATS, 0.5, np.float32)
        return lambda seconds: amount * probe.turns_a_second(halves, seconds)

    def _read(self, size: int) -> Callable[[float], float]:
        """Return a probe that reads the same bytes again and again."""
        size = min(size, self._memory.nbytes)
        probe, memory = self._probe("read", probes.walk("read", size, self._host)), self._memory[: size // 4]
        return lambda seconds: size * probe.turns_a_second(memory, seconds)

    def _walked(self, size: int, rate: Callable[[Probe, Sequence[Array], float], float]) -> Callable[[float], float]:
        """Return a probe that reads all of the memory, ``size`` bytes at a time."""
        probe, floats = self._probe("read", probes.walk("read", size, self._host)), size // 4
        parts = [self._memory[at : at + floats] for at in range(0, self._memory.size - floats + 1, floats)]
        return lambda seconds: size * rate(probe, parts, seconds)


def _rounded_down(size: int) -> int:
    """Round down to a multiple of what a walk reads at a time."""
    return max(1 << 17, size - size % (1 << 16))


def _memory_bytes(caches: Caches, threads: int) -> int:
    least, most = _MEMORY_BYTES
    wanted = min(max(4 * caches.last, least), most, int(_FREE_SHARE * free_memory_bytes()))
    return max(_rounded_down(wanted), threads * _rounded_down(0))


def measure_peak(seconds: float = 0.2, host: Host | None = None) -> float:
    """Return the peak floating-point operations per second of one core, the best of many short turns.

    Args:
        seconds: how long to measure.
        host: the processor to generate for; None for this one.

    Raises:
        CompileError: the processor is not supported.
    """
    host = host or detect()
    return 2 * host.lanes * products_a_second(host, seconds)


def products_a_second(host: Host, seconds: float) -> float:
    """Return the rate of independent products of two vectors on registers."""
    count = probes.chains(host)
    probe = Probe("peak", probes.peak(host, count), host)
    return count * probe.turns_a_second(np.full((count + 2) * host.lanes, 0.5, np.float32), seconds)
