"""Memory of a process, as the system counts it."""

from __future__ import annotations

import re
from pathlib import Path


def resident_bytes(pid: int | str = "self") -> int:
    """Return the resident bytes of a process; 0 if it has ended."""
    return _bytes(f"/proc/{pid}/status", "VmRSS")


def proportional_bytes(pid: int | str = "self") -> int:
    """Return the resident bytes, with shared pages counted by their share."""
    return _bytes(f"/proc/{pid}/smaps_rollup", "Pss")


def _bytes(path: str, name: str) -> int:
    try:
        found = re.search(rf"^{name}:\s+(\d+) kB", Path(path).read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0


def rollup(pid: int | str = "self") -> dict[str, int]:
    """Return bytes of a process by kind: rss, pss, anonymous, file, shared (with others), and peak (of rss)."""
    names = {"rss": "Rss", "pss": "Pss", "anonymous": "Anonymous"}
    found = {name: _bytes(f"/proc/{pid}/smaps_rollup", entry) for name, entry in names.items()}
    pages = (_bytes(f"/proc/{pid}/smaps_rollup", f"Shared_{kind}") for kind in ("Clean", "Dirty"))
    status = f"/proc/{pid}/status"
    return {**found, "file": _bytes(status, "RssFile"), "shared": sum(pages), "peak": _bytes(status, "VmHWM")}
