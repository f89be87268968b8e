"""How values, sizes and times are spelt in every rendering.

Texts of a model are hostile: names may hold control characters, terminal escapes and halves of surrogate pairs.
``app.messages.printable`` makes them harmless for a terminal, ``cleaned`` for a markup language; both keep what people
can read.
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
    """The text with every character that markup forbids, or that would reorder its surroundings, replaced."""
    return FORBIDDEN.sub("\ufffd", text)


def shortened(text: str, limit: int, tail: int = 0) -> str:
    """At most ``limit`` characters, the last ``tail`` of them from the end of the text."""
    if len(text) <= limit:
        return text
    return f"{text[: limit - 1 - tail]}…{text[len(text) - tail :]}"


def text_width(text: str, size: float) -> float:
    """Width in pixels of a text in a common sans-serif face, rather too wide than too narrow."""
    return size * sum(_advance(char) for char in text)


def shape_text(shape: Iterable[int | None] | None, names: Iterable[str | None] = ()) -> str:
    """``1×3×?×?``, of open dimensions the name if it has one; ``scalar`` without dimensions, empty when unknown."""
    if shape is None:
        return ""
    pairs = zip(shape, chain(names, repeat(None)), strict=False)
    return "×".join(name or "?" if dim is None else str(dim) for dim, name in pairs) or "scalar"


def value_text(value: Any) -> str:
    """A parameter as PNNX spells it: ``(1,1)``, ``None``, ``zeros``."""
    if isinstance(value, (list, tuple)):
        return f"({','.join(map(value_text, value))})"
    return str(value)


def params_text(params: Mapping[str, Any]) -> str:
    """``kernel_size=(3,3) stride=(1,1)``."""
    return " ".join(f"{key}={value_text(value)}" for key, value in params.items())


def counted(number: int, thing: str) -> str:
    """``1 thread``, ``2 threads``."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def count_text(count: float, unit: str = "") -> str:
    """``11.7 M``, ``3.63 GFLOP``: three digits."""
    for step, prefix in _STEPS:
        if abs(count) >= step:
            return f"{count / step:.3g} {prefix}{unit}"
    return f"{count:.3g} {unit}".rstrip()


def time_text(time_us: float) -> str:
    """``812 µs``, ``1.23 ms``, ``2.5 s``: three digits."""
    if time_us >= 1e6:
        return f"{time_us / 1e6:.3g} s"
    return f"{time_us / 1e3:.3g} ms" if time_us >= 999.5 else f"{time_us:.3g} µs"


def percent_text(share: float) -> str:
    """``12.3 %``."""
    return f"{100 * share:.1f} %"


def totals_text(totals: Mapping[str, int]) -> str:
    """``51 operators · 11.7 M parameters · 46.7 MB · 3.63 GFLOP``, whatever of it is known."""
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
