"""What other programs do while something is measured."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

_STAT: Final = Path("/proc/stat")
# Of the columns: idle, and waiting for a disk.
_IDLE: Final = (3, 4)


class OtherWork:
    """From now on until it is asked."""

    def __init__(self, stat: Path = _STAT) -> None:
        self._stat = stat
        self._start = self._busy_s(), time.process_time(), time.perf_counter()

    def share(self) -> float:
        """Of the time of all cores, what other programs took; 0 where the system does not say."""
        busy, own, start = self._start
        elapsed = (time.perf_counter() - start) * (os.cpu_count() or 1)
        now = self._busy_s()
        if busy is None or now is None or elapsed <= 0:
            return 0.0
        return max(0.0, (now - busy) - (time.process_time() - own)) / elapsed

    def _busy_s(self) -> float | None:
        """Seconds in which any core did anything, other machines' shares of this one included."""
        with suppress(OSError, ValueError, IndexError):
            line = self._stat.read_text(errors="replace").partition("\n")[0].split()
            ticks = [int(each) for each in line[1:9]]
            if line[0] == "cpu" and len(ticks) == 8:
                return (sum(ticks) - sum(ticks[k] for k in _IDLE)) / os.sysconf("SC_CLK_TCK")
        return None
