"""How messages list names and guess at misspelt ones."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``" (did you mean 'top_k'?)"`` for the nearest known name, empty when none is near."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean '{near[0]}'?)" if near else ""


def quoted(names: Iterable[str]) -> str:
    """``'a', 'b'``: names as messages list them; ``none`` when there are none."""
    return ", ".join(f"'{name}'" for name in names) or "none"
