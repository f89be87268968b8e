"""Accept: which of the answers there are does the client want? RFC 9110 section 12.5.1, as far as it matters here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from app.errors import NotAcceptableError
from app.wording import cut

# A client that lists more ranges than this has none in mind; what follows is not read.
_MOST_RANGES: Final = 100
_QVALUE: Final = re.compile(r"[0-9]?(\.[0-9]{0,9})?")


def choose(accept: str, offered: Sequence[str]) -> str:
    """The offered media type the client likes best; of equal ones the first offered.

    Raises:
        NotAcceptableError: the client wants none of them.
    """
    if not accept.strip():
        return offered[0]
    ranges: dict[str, float] = {}
    for part in accept.split(",", _MOST_RANGES)[:_MOST_RANGES]:
        name, quality = _range(part)
        ranges.setdefault(name, quality)
    best = max(offered, key=lambda offer: _quality(offer, ranges))  # max() keeps the first of equals
    if _quality(best, ranges) <= 0:
        raise NotAcceptableError(
            f"Accept: found '{cut(accept)}', this request can be answered as {', '.join(offered)}",
            expected=list(offered),
        )
    return best


def _range(part: str) -> tuple[str, float]:
    """A media range and its quality; one that is not a number is none."""
    name, *parameters = (piece.strip().lower() for piece in part.split(";", _MOST_RANGES))
    quality = next((text[2:] for text in parameters if text.startswith("q=")), "1")
    return name, float(quality) if _QVALUE.fullmatch(quality) and quality not in ("", ".") else 0.0


def _quality(offer: str, ranges: Mapping[str, float]) -> float:
    """The quality of the most specific range that matches; 0 when none does."""
    patterns = (offer, f"{offer.partition('/')[0]}/*", "*/*")
    return next((ranges[pattern] for pattern in patterns if pattern in ranges), 0.0)
