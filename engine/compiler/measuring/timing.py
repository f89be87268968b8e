"""Timing of probes: the fastest of many short turns, on one core or on several at once."""

from __future__ import annotations

import ctypes
import mmap
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from typing import Final

import numpy as np

from engine.compiler.codegen import object_code
from engine.compiler.codegen.host import Host
from engine.compiler.runtime.memory import allocate
from engine.tensor import Array

# Short enough to be rarely interrupted, long enough for the clock's resolution.
_TURN_S: Final = 5e-4
_RUN: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)


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
    """Return the rate of the slowest of several threads that run a probe at once, each on its own memory."""
    if len(memories) == 1:
        return probe.turns_a_second(memories[0], seconds)
    with ThreadPoolExecutor(len(memories)) as pool:
        return min(pool.map(lambda memory: probe.turns_a_second(memory, seconds), memories))


def written(size: int) -> Array:
    """Return zeroed memory whose pages were written, because untouched pages all map to the same zero page."""
    memory = allocate(size).view(np.float32)
    memory[:: mmap.PAGESIZE // 4] = 0
    return memory
