"""What compiling has cost this process so far, and what is kept of it: plain numbers, for whoever watches a server.

The compiler writes them here, so that asking for them does not import it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileFigures:
    """Of all graphs of the process.

    Args:
        compiled, compiled_s: programs that were compiled, and how long that took.
        cached, cached_s: programs that were found in the cache on disk.
        instances, instances_bytes: programs that are kept ready to run, and the memory they take.
        wishes: shapes that were met and have no program.
        is_compiling: whether a program is being made in the background.
    """

    compiled: int
    compiled_s: float
    cached: int
    cached_s: float
    instances: int
    instances_bytes: int
    wishes: int
    is_compiling: bool


class Meter:
    """Where the compiler writes; many threads may at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = {True: 0, False: 0}
        self._seconds = {True: 0.0, False: 0.0}
        self.kept: Callable[[], tuple[int, int]] = lambda: (0, 0)
        self.wished: Callable[[], tuple[int, bool]] = lambda: (0, False)

    def made(self, seconds: float, *, is_cached: bool) -> None:
        """Count a program."""
        with self._lock:
            self._counts[is_cached] += 1
            self._seconds[is_cached] += seconds

    def read(self) -> CompileFigures:
        """The figures as they stand now."""
        instances, size = self.kept()
        wishes, is_compiling = self.wished()
        with self._lock:
            return CompileFigures(
                compiled=self._counts[False],
                compiled_s=self._seconds[False],
                cached=self._counts[True],
                cached_s=self._seconds[True],
                instances=instances,
                instances_bytes=size,
                wishes=wishes,
                is_compiling=is_compiling,
            )


METER: Final = Meter()


def compile_figures() -> CompileFigures:
    """What compiling has cost this process so far; takes microseconds, and waits for nothing that compiles."""
    return METER.read()
