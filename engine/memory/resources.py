"""Resources that this process may use: cores and memory.

The machine, every control group of this process, and its own limits each set a limit; the smallest counts. All are read
from the files of /proc and /sys/fs/cgroup, of either version; a file that is missing, says "max" or is malformed sets
no limit. Control groups are nested, and a limit of an outer group holds for all within it. In a container the outer
groups may be invisible, and the path of the own group may be that of the host: then the top of the mounted hierarchy is
the own group, so parents are walked up to it whether they exist or not.

Only the standard library is imported, nothing of the engine either: the number of BLAS threads is set from the cores
before numpy is imported.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path("/")

_GROUPS: Final = Path("sys/fs/cgroup")
_SELF: Final = Path("proc/self")
# A larger number in a cgroup of version 1 stands for no limit.
_UNLIMITED: Final = 1 << 60
# Assumed where no limit can be read.
_ASSUMED: Final = 4 << 30
_FILE_BYTES: Final = 1 << 16
_DEEPEST: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limit:
    """A limit of bytes, and the bytes of it that are in use."""

    most: int
    used: int = 0


def available_cores() -> int:
    """Return the number of usable cores, at least 1; a quota is rounded down, as a group that used it up is paused."""
    quota = cpu_quota()
    return max(1, affinity() if quota is None else min(affinity(), int(quota)))


def affinity() -> int:
    """Return the number of cores that the scheduler may run this process on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_quota(root: Path = ROOT) -> float | None:
    """Return the cores' worth of time that the control groups allow; None without a limit.

    Args:
        root: root folder of the file system, for tests.
    """
    return min(_quotas(root), default=None)


def total_memory_bytes(root: Path = ROOT) -> int:
    """Return the memory this process may have in all, minus what its own limits already count as mapped.

    Args:
        root: root folder of the file system, for tests.
    """
    return max(1, min((limit.most for limit in _limits(root)), default=_ASSUMED))


def free_memory_bytes(root: Path = ROOT) -> int:
    """Return the memory this process may still take now, including reclaimable page cache.

    Args:
        root: root folder of the file system, for tests.
    """
    return max(0, min((limit.most - limit.used for limit in _limits(root)), default=_ASSUMED))


def _limits(root: Path) -> Iterator[_Limit]:
    for limit in (*_machine(root), *_groups(root), *_process(root)):
        if limit.most < _UNLIMITED:
            yield limit


def _quotas(root: Path) -> Iterator[float]:
    for folder, is_unified in _group_folders(root, "cpu").items():
        names = ("cpu.max",) if is_unified else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        words = [word for name in names for word in _read(folder / name).split()]
        quota, period = map(_number, words) if len(words) == 2 else (None, None)
        if quota and period:
            yield quota / period


def _machine(root: Path) -> Iterator[_Limit]:
    rows = _rows(root / "proc/meminfo", ":")
    total = rows.get("MemTotal", 0) * 1024
    if not total and root == ROOT:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if total > 0:
        yield _Limit(most=total, used=max(0, total - rows.get("MemAvailable", rows.get("MemTotal", 0)) * 1024))


def _groups(root: Path) -> Iterator[_Limit]:
    for folder, is_unified in _group_folders(root, "memory").items():
        names = ("memory.max", "memory.high") if is_unified else ("memory.limit_in_bytes",)
        numbers = [_number(_read(folder / name)) for name in names]
        sizes = [number for number in numbers if number]
        if sizes:
            used = _number(_read(folder / ("memory.current" if is_unified else "memory.usage_in_bytes"))) or 0
            stat = _rows(folder / "memory.stat", " ")
            # Cached file pages that are not in use are reclaimed on demand.
            cached = stat.get("inactive_file" if is_unified else "total_inactive_file", 0)
            yield _Limit(most=min(sizes), used=max(0, used - cached))


def _group_folders(root: Path, controller: str) -> dict[Path, bool]:
    """Return the folders of all groups that limit this process, each with whether it is of cgroup version 2."""
    tops = {True: (root / _GROUPS, root / _GROUPS / "unified"), False: (root / _GROUPS / controller,)}
    # If the own group is not listed, it is the one at the top.
    found = [(True, Path()), (False, Path())]
    for line in _read(root / _SELF / "cgroup").splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if hierarchy == "0" or controller in controllers.split(","):
            # A path outside the mounted hierarchy is ignored.
            inside = Path(*[part for part in path.split("/") if part not in ("", ".", "..")][:_DEEPEST])
            found += [(hierarchy == "0", group) for group in (inside, *inside.parents)]
    return {top / group: is_unified for is_unified, group in found for top in tops[is_unified]}


def _process(root: Path) -> Iterator[_Limit]:
    """Yield limits of the process itself, which count everything that is mapped, libraries and threads included."""
    pages = [_number(part) or 0 for part in _read(root / _SELF / "statm").split()]
    mapped = dict(zip(("size", "resident", "shared", "text", "lib", "data"), pages, strict=False))
    kinds = {"Max address space": "size", "Max data size": "data"}
    for line in _read(root / _SELF / "limits").splitlines():
        for name, column in kinds.items():
            if line.startswith(name):
                limit = _number((line.removeprefix(name).split() or [""])[0])
                if limit is not None:
                    yield _Limit(most=max(1, limit - mapped.get(column, 0) * os.sysconf("SC_PAGE_SIZE")))


def _rows(path: Path, separator: str) -> dict[str, int]:
    """Return the lines of a file that hold a name and a number."""
    rows: dict[str, int] = {}
    for line in _read(path).splitlines():
        name, _, rest = line.partition(separator)
        value = _number((rest.split() or [""])[0])
        if value is not None:
            rows.setdefault(name, value)
    return rows


def _number(text: str) -> int | None:
    stripped = text.strip()
    return int(stripped) if stripped.isascii() and stripped.isdigit() and len(stripped) < 20 else None


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_FILE_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):  # missing, unreadable, or a name with a zero byte
        return ""
