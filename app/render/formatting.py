"""Formatting of values, sizes and times in all renderings.

Texts of a model are untrusted: names may contain control characters, terminal escapes and lone surrogates.
``app.messages.printable`` makes them safe for a terminal, ``cleaned`` for a markup language; both keep readable text.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from itertools import chain, repeat
from typing import Any, Final

from app.messages import FORBIDDEN

_WIDE: Final = frozenset("WF")
_NARROW: Final = frozenset("iljtfrI.,:;'|!()[]{} -/")
_BROAD: Final = frozenset("×→+=<>~mMwW%@#…—")
_STEPS: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def cleaned(text: str) -> str:
    """Return the text with characters that markup forbids or that reorder text replaced."""
    return FORBIDDEN.sub("\ufffd", text)


def shortened(text: str, limit: int, tail: int = 0) -> str:
    """Return at most ``limit`` characters, the last ``tail`` of them from the end of the text."""
    if len(text) <= limit:
        return text
    return f"{text[: limit - 1 - tail]}…{text[len(text) - tail :]}"


def text_width(text: str, size: float) -> float:
    """Return an upper estimate of a text's width in pixels in a common sans-serif font."""
    return size * sum(_advance(char) for char in text)


def shape_text(shape: Iterable[int | None] | None, names: Iterable[str | None] = ()) -> str:
    """Return ``1×3×?×?`` with the names of dynamic dimensions; ``scalar`` without dimensions, empty if unknown."""
    if shape is None:
        return ""
    pairs = zip(shape, chain(names, repeat(None)), strict=False)
    return "×".join(name or "?" if dim is None else str(dim) for dim, name in pairs) or "scalar"


def value_text(value: Any) -> str:
    """Return a parameter as PNNX spells it: ``(1,1)``, ``None``, ``zeros``."""
    if isinstance(value, (list, tuple)):
        return f"({','.join(map(value_text, value))})"
    return str(value)


def params_text(params: Mapping[str, Any]) -> str:
    """Return ``kernel_size=(3,3) stride=(1,1)``."""
    return " ".join(f"{key}={value_text(value)}" for key, value in params.items())


def counted(number: int, thing: str) -> str:
    """Return ``1 thread`` or ``2 threads``."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def count_text(count: float, unit: str = "") -> str:
    """Return three significant digits: ``11.7 M``, ``3.63 GFLOP``."""
    for step, prefix in _STEPS:
        if abs(count) >= step:
            return f"{count / step:.3g} {prefix}{unit}"
    return f"{count:.3g} {unit}".rstrip()


def time_text(time_us: float) -> str:
    """Return three significant digits: ``812 µs``, ``1.23 ms``, ``2.5 s``."""
    if time_us >= 1e6:
        return f"{time_us / 1e6:.3g} s"
    return f"{time_us / 1e3:.3g} ms" if time_us >= 999.5 else f"{time_us:.3g} µs"


def percent_text(share: float) -> str:
    """Return ``12.3 %``."""
    return f"{100 * share:.1f} %"


def totals_text(totals: Mapping[str, int]) -> str:
    """Return the known parts of ``51 operators · 11.7 M parameters · 46.7 MB · 3.63 GFLOP``."""
    parts = [f"{totals['operators']:,} operators"]
    if totals.get("parameters"):
        parts.append(f"{count_text(totals['parameters'])} parameters")
    if totals.get("bytes"):
        parts.append(count_text(totals["bytes"], "B"))
    if totals.get("flops"):
        parts.append(count_text(totals["flops"], "FLOP"))
    return " · ".join(parts)


def _advance(char: str) -> float:
    if char in _NARROW:
        return 0.4
    if unicodedata.east_asian_width(char) in _WIDE:
        return 1.05
    if char in _BROAD:
        return 0.86
    return 0.73 if char.isupper() else 0.63
