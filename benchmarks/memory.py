"""Memory of a process, as the system counts it."""

from __future__ import annotations

import re
from pathlib import Path


def resident_bytes(pid: int | str = "self") -> int:
    """All that is in memory; 0 of a process that is gone."""
    return _bytes(f"/proc/{pid}/status", "VmRSS")


def proportional_bytes(pid: int | str = "self") -> int:
    """The same, but pages that several processes have are counted by their share."""
    return _bytes(f"/proc/{pid}/smaps_rollup", "Pss")


def _bytes(path: str, name: str) -> int:
    try:
        found = re.search(rf"^{name}:\s+(\d+) kB", Path(path).read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0


def rollup(pid: int | str = "self") -> dict[str, int]:
    """Bytes of a process by kind: rss, pss, anonymous, file, shared (with other processes), and peak (of rss)."""
    names = {"rss": "Rss", "pss": "Pss", "anonymous": "Anonymous"}
    found = {name: _bytes(f"/proc/{pid}/smaps_rollup", entry) for name, entry in names.items()}
    pages = (_bytes(f"/proc/{pid}/smaps_rollup", f"Shared_{kind}") for kind in ("Clean", "Dirty"))
    status = f"/proc/{pid}/status"
    return {**found, "file": _bytes(status, "RssFile"), "shared": sum(pages), "peak": _bytes(status, "VmHWM")}
