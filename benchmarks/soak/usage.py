"""The server's use of the machine, from its start to its end."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.memory import resident_bytes


@dataclass(frozen=True)
class Usage:
    """Values of one moment."""

    at_s: float
    memory_mb: float
    threads: int
    files: int


@dataclass
class UsageLog:
    """Values once a second."""

    pid: int
    start: float
    looks: list[Usage] = field(default_factory=list)

    def look(self) -> Usage:
        """Return the current values."""
        found = Usage(
            at_s=time.monotonic() - self.start,
            memory_mb=resident_bytes(self.pid) / 2**20,
            threads=len(os.listdir(f"/proc/{self.pid}/task")),
            files=len(os.listdir(f"/proc/{self.pid}/fd")),
        )
        self.looks.append(found)
        return found

    def growth_mb(self, settled_s: float) -> float:
        """Return the growth from the first tenth after settled_s to the last, by their medians."""
        known = [look for look in self.looks if look.at_s >= settled_s]
        count = max(1, len(known) // 10)
        return _middle(known[-count:]) - _middle(known[:count]) if known else 0.0

    def write(self, path: Path) -> None:
        """Write all values, a line each."""
        lines = [f"{look.at_s:.0f} {look.memory_mb:.1f} {look.threads} {look.files}\n" for look in self.looks]
        path.write_text("# seconds, MB, threads, files\n" + "".join(lines))


def _middle(looks: Sequence[Usage]) -> float:
    return statistics.median(look.memory_mb for look in looks)
