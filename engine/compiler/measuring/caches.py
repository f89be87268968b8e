"""Cache sizes of a core, as the operating system reports them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS: Final = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_LARGEST: Final = 16 << 30


@dataclass(frozen=True, slots=True)
class Caches:
    """Sizes in bytes of a cache line and of each level; 0 where unknown or absent."""

    line: int = 0
    first: int = 0
    second: int = 0
    last: int = 0


def find_caches(root: Path = ROOT) -> Caches:
    """Return the sizes of the data caches."""
    levels: dict[int, int] = {}
    line = 0
    for place in sorted(root.glob("index[0-9]*")):
        if _text(place / "type") in ("Data", "Unified"):
            levels[_number(_text(place / "level"))] = _number(_text(place / "size"))
            line = line or _number(_text(place / "coherency_line_size"))
    return Caches(
        line, levels.get(1, 0), levels.get(2, 0), max([size for n, size in levels.items() if n > 2], default=0)
    )


def _text(path: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return path.read_text().strip()
    return ""


def _number(text: str) -> int:
    """Parse a size as the system writes it; 0 if it is not one."""
    digits, unit = (text[:-1], _UNITS[text[-1]]) if text[-1:] in _UNITS else (text, 1)
    if not (digits.isascii() and digits.isdigit() and len(digits) < 12):
        return 0
    return min(int(digits) * unit, _LARGEST)
