"""The cores this process may use: what the scheduler allows it, less what its control group's quota forbids."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def available_cores(proc: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> int:
    """At least one; a quota is rounded down, because a group that used its quota up is stopped for a while."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([allowed, *(int(quota) for quota in _quotas(proc, root))]))


def _quotas(proc: Path, root: Path) -> Iterator[float]:
    for line in _read(proc).splitlines():
        hierarchy, controllers, path = line.split(":", 2)
        inside = Path(path.lstrip("/"))
        for group in (inside, *inside.parents):
            if hierarchy == "0":
                words = _read(root / group / "cpu.max").split()
            elif "cpu" in controllers.split(","):
                folder = root / "cpu" / group
                words = [_read(folder / name).strip() for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")]
            else:
                continue
            if len(words) == 2 and all(word.isdigit() for word in words) and int(words[1]):
                yield int(words[0]) / int(words[1])


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
