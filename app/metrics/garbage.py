"""How long garbage collection lets everybody wait: Python counts collections, but not their time."""

from __future__ import annotations

import gc
import time
from typing import Final


class Garbage:
    """The time of each generation's collections, in seconds; counted from ``watch`` on."""

    def __init__(self) -> None:
        self.seconds = [0.0] * len(gc.get_stats())
        self._start = 0.0

    def watch(self) -> None:
        """Begin, once in a process."""
        if self._note not in gc.callbacks:
            gc.callbacks.append(self._note)

    def _note(self, phase: str, info: dict[str, int]) -> None:
        # Collections do not nest, and no thread runs Python while one does.
        if phase == "start":
            self._start = time.perf_counter()
        else:
            self.seconds[info["generation"]] += time.perf_counter() - self._start


GARBAGE: Final = Garbage()
