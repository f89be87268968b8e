"""What this process may use of the machine: cores and memory.

A machine, every control group this process is in, and its own limits each say how much; the least of them counts. All
of it is read from the files of /proc and /sys/fs/cgroup, of either version; what is not there, says "max" or makes no
sense limits nothing. Groups lie within each other, and a limit of an outer one holds for all within it. In a container
the outer ones may not be seen, and the path of the own one may be that of the host: then the top of what is mounted is
the own one, so parents are walked up to it whether they exist or not.

Nothing but the standard library is imported, not even the engine's own: who settles BLAS's threads asks for cores
before there is numpy.
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
# Beyond this a group of the first version says that it has no limit.
_UNLIMITED: Final = 1 << 60
# Where nothing can be found out.
_ASSUMED: Final = 4 << 30
_FILE_BYTES: Final = 1 << 16
_DEEPEST: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limit:
    """What may be had, and what of that cannot be had any more."""

    most: int
    used: int = 0


def available_cores() -> int:
    """At least one; a quota is rounded down, because a group that used its quota up is stopped for a while."""
    quota = cpu_quota()
    return max(1, affinity() if quota is None else min(affinity(), int(quota)))


def affinity() -> int:
    """The cores that the scheduler may run this process on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_quota(root: Path = ROOT) -> float | None:
    """Cores' worth of time that the control groups allow; None without a limit.

    Args:
        root: of the file system; another one in tests.
    """
    return min(_quotas(root), default=None)


def total_memory_bytes(root: Path = ROOT) -> int:
    """Memory this process may have in all; what is mapped already counts where its own limits do.

    Args:
        root: of the file system; another one in tests.
    """
    return max(1, min((limit.most for limit in _limits(root)), default=_ASSUMED))


def free_memory_bytes(root: Path = ROOT) -> int:
    """Memory this process may still take as things are, what the system keeps of files and can give up included.

    Args:
        root: of the file system; another one in tests.
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
            # What was read of files and is not in use goes as soon as something else is wanted.
            cached = stat.get("inactive_file" if is_unified else "total_inactive_file", 0)
            yield _Limit(most=min(sizes), used=max(0, used - cached))


def _group_folders(root: Path, controller: str) -> dict[Path, bool]:
    """The folders of all groups that limit this process -> whether they are of the second version."""
    tops = {True: (root / _GROUPS, root / _GROUPS / "unified"), False: (root / _GROUPS / controller,)}
    # Without a word about the own group it is the one at the top.
    found = [(True, Path()), (False, Path())]
    for line in _read(root / _SELF / "cgroup").splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if hierarchy == "0" or controller in controllers.split(","):
            # A path that leads out of what is mounted says nothing.
            inside = Path(*[part for part in path.split("/") if part not in ("", ".", "..")][:_DEEPEST])
            found += [(hierarchy == "0", group) for group in (inside, *inside.parents)]
    return {top / group: is_unified for is_unified, group in found for top in tops[is_unified]}


def _process(root: Path) -> Iterator[_Limit]:
    """Limits of the process itself count what is mapped already, libraries and threads among it."""
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
    """Lines of a name and a number."""
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
    except (OSError, ValueError):  # not there, not ours to read, or a name with a zero byte
        return ""
