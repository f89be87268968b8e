"""How fast a probe runs: the fastest of many short turns, on one core or on several at once."""

from __future__ import annotations

import ctypes
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np

from engine.compiler.codegen import object_code
from engine.compiler.codegen.host import Host
from engine.compiler.runtime.allocation import allocate
from engine.tensor import Array

# Short enough for the system not to come between, long enough for the clock.
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

    def turns_a_second(self, memory: Array, seconds: float) -> float:
        """The rate of the fastest of many calls.

        Args:
            memory: what it works on; float32.
            seconds: how long to measure; at least three calls are made.
        """
        turns, fastest = self._turns(memory), float("inf")
        calls, end = 0, time.perf_counter() + seconds
        while calls < 3 or time.perf_counter() < end:
            start = time.perf_counter()
            self._run(memory.ctypes.data, turns)
            fastest, calls = min(fastest, time.perf_counter() - start), calls + 1
        return turns / fastest

    def _turns(self, memory: Array) -> int:
        """So many turns that the clock can tell; calling them warms what is to be measured."""
        turns = 1
        while True:
            start = time.perf_counter()
            self._run(memory.ctypes.data, turns)
            if time.perf_counter() - start > _TURN_S:
                return turns
            turns *= 2


def slowest_of(probe: Probe, size: int, seconds: float, threads: int) -> float:
    """Turns a second of the slowest of so many threads that run a probe at once, each on memory of its own.

    Args:
        size: of that memory, in bytes.
    """

    def measure(memory: Array) -> float:
        return probe.turns_a_second(memory, seconds)

    memories = [written(size) for _ in range(threads)]
    if threads == 1:
        return measure(memories[0])
    with ThreadPoolExecutor(threads) as pool:
        return min(pool.map(measure, memories))


def written(size: int) -> Array:
    """Zeros, so many bytes of them, that were written: pages that nobody wrote to are all the same one."""
    memory = allocate(size).view(np.float32)
    memory[:] = 0
    return memory
