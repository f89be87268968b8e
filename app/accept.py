"""Accept: which of the answers there are does the client want? RFC 9110 section 12.5.1, as far as it matters here."""

from __future__ import annotations

from collections.abc import Sequence

from app.errors import NotAcceptableError


def choose(accept: str, offered: Sequence[str]) -> str:
    """The offered media type the client likes best; of equal ones the first offered.

    Raises:
        NotAcceptableError: the client wants none of them.
    """
    if not accept.strip():
        return offered[0]
    ranges = [_range(part) for part in accept.split(",") if part.strip()]
    best = max(offered, key=lambda offer: _quality(offer, ranges))  # max() keeps the first of equals
    if _quality(best, ranges) <= 0:
        raise NotAcceptableError(
            f"Accept: found '{accept}', this request can be answered as {', '.join(offered)}", expected=list(offered)
        )
    return best


def _range(part: str) -> tuple[str, float]:
    name, *parameters = (piece.strip().lower() for piece in part.split(";"))
    quality = next((text[2:] for text in parameters if text.startswith("q=")), "1")
    try:
        return name, float(quality)
    except ValueError:
        return name, 0.0


def _quality(offer: str, ranges: Sequence[tuple[str, float]]) -> float:
    """The quality of the most specific range that matches; 0 when none does."""
    patterns = (offer, f"{offer.partition('/')[0]}/*", "*/*")
    return next((quality for pattern in patterns for name, quality in ranges if name == pattern), 0.0)
