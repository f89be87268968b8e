"""How texts of a file appear in messages: quoted, printable and short, however hostile the file."""

from __future__ import annotations

_LIMIT = 60


def quoted(text: str) -> str:
    """``text`` in quotes with unprintable characters escaped, cut in the middle when it is long."""
    if len(text) <= _LIMIT:
        return repr(text)
    return f"{text[: _LIMIT // 2]!r}...{text[-_LIMIT // 4 :]!r} ({len(text):,} characters)"
