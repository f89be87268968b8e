"""What else goes on while something is measured: in other programs, and in this one."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from engine.memory.resources import available_cores

_STAT: Final = Path("/proc/stat")
# Columns of /proc/stat for processors at rest: idle, and waiting for a disk.
_IDLE: Final = (3, 4)


class OtherWork:
    """From now on until it is asked."""

    def __init__(self, stat: Path = _STAT) -> None:
        self._stat = stat
        self._start = self._busy(), time.process_time(), time.perf_counter()

    def share(self, own_s: float) -> float:
        """Of the time of all cores, what went on beside; of this program's part alone where the system does not say.

        Args:
            own_s: processor time that what is measured took itself.
        """
        before, process, start = self._start
        now, elapsed, process = self._busy(), time.perf_counter() - start, time.process_time() - process
        if elapsed <= 0:
            return 0.0
        if before is None or now is None:
            return max(0.0, process - own_s) / (elapsed * available_cores())
        (busy, _), (busy_now, cores) = before, now
        return max(0.0, max(busy_now - busy, process) - own_s) / (elapsed * cores)

    def _busy(self) -> tuple[float, int] | None:
        """Seconds in which any core did anything, other machines' shares of this one included; how many cores."""
        with suppress(OSError, ValueError, IndexError):
            rows = [line.split() for line in self._stat.read_text(errors="replace").splitlines()]
            ticks = [int(each) for each in rows[0][1:9]]
            if rows[0][0] == "cpu" and len(ticks) == 8:
                cores = sum(row[:1] != [] and row[0].startswith("cpu") for row in rows) - 1
                return (sum(ticks) - sum(ticks[k] for k in _IDLE)) / os.sysconf("SC_CLK_TCK"), max(1, cores)
        return None
