"""How messages and log lines say names and values, and guess at misspelt ones.

What a client or a file wrote is echoed, because that helps to find it, but never at any length, and never with
characters that do something to a terminal or end a line of the log.
"""

from __future__ import annotations

import difflib
import itertools
import re
import reprlib
from collections.abc import Iterable
from typing import Final

# What XML 1.0 (section 2.2) does not allow in a document, and marks that end a line or reorder what is around them.
FORBIDDEN: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)

MAX_REASON: Final = 1000
_ECHO: Final = 100
_NAMES: Final = 100
_SHORT: Final = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = _ECHO


def cut(text: str, limit: int = _ECHO) -> str:
    """The text, or the beginning and the end of one that is longer than limit, with its length."""
    if len(text) <= limit:
        return text
    return f"{text[: limit * 2 // 3]}...{text[-(limit // 4) :]} ({len(text):,} characters)"


def brief(value: object) -> str:
    """``repr(value)``, of bounded length however long or deep the value is."""
    try:
        return _SHORT.repr(value)
    except ValueError:  # a whole number of more digits than Python is willing to write
        return "a very long number"


def printable(text: str) -> str:
    r"""Return the text with control characters and bidirectional marks written as escapes such as ``\x1b``."""
    if text.isprintable():
        return text
    return FORBIDDEN.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def told(text: str, limit: int = MAX_REASON) -> str:
    """The text cut and printable, as an answer or a log can carry it."""
    return printable(cut(text, limit))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``" (did you mean 'top_k'?)"`` for the nearest known name, empty when none is near."""
    if len(name) > _ECHO:  # a slip of the pen is short, and comparing takes time
        return ""
    near = difflib.get_close_matches(name, list(itertools.islice(known, 1000)), n=1)
    return f" (did you mean '{cut(near[0])}'?)" if near else ""


def quoted(names: Iterable[str]) -> str:
    """``'a', 'b'``: names as messages list them; ``none`` when there are none, and no more than fit a message."""
    every = list(names)
    shown = [f"'{cut(name)}'" for name in every[:_NAMES]]
    more = [f"and {len(every) - _NAMES} more"] if len(every) > _NAMES else []
    return ", ".join(shown + more) or "none"
