"""Compile metrics of this process: plain numbers, written by the compiler and read by whatever watches a server.

They live apart from the compiler so that reading them does not import it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileMetrics:
    """Compile counters of the process, over all graphs.

    Args:
        compiled, compiled_s: number of programs compiled, and the seconds spent.
        cached, cached_s: number of programs loaded from the cache on disk, and the seconds spent.
        instances, instances_bytes: programs kept ready to run, and their memory.
        compile_requests: shapes that were requested and have no program yet.
        is_compiling: whether a program is being compiled in the background.
    """

    compiled: int
    compiled_s: float
    cached: int
    cached_s: float
    instances: int
    instances_bytes: int
    compile_requests: int
    is_compiling: bool


class CompileMeter:
    """Thread-safe counters that the compiler writes to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = {True: 0, False: 0}
        self._seconds = {True: 0.0, False: 0.0}
        self.read_cache: Callable[[], tuple[int, int]] = lambda: (0, 0)
        self.read_queue: Callable[[], tuple[int, bool]] = lambda: (0, False)

    def count_program(self, seconds: float, *, is_cached: bool) -> None:
        """Count a program."""
        with self._lock:
            self._counts[is_cached] += 1
            self._seconds[is_cached] += seconds

    def read(self) -> CompileMetrics:
        """Return a snapshot of the metrics."""
        instances, size = self.read_cache()
        compile_requests, is_compiling = self.read_queue()
        with self._lock:
            return CompileMetrics(
                compiled=self._counts[False],
                compiled_s=self._seconds[False],
                cached=self._counts[True],
                cached_s=self._seconds[True],
                instances=instances,
                instances_bytes=size,
                compile_requests=compile_requests,
                is_compiling=is_compiling,
            )


METER: Final = CompileMeter()


def compile_metrics() -> CompileMetrics:
    """Return the compile metrics of this process; takes microseconds and never waits for the compiler."""
    return METER.read()
