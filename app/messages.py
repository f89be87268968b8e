"""Names and values in messages and log lines, and suggestions for misspelt names.

What a client or a file wrote is echoed, since that helps to find the mistake, but cut to a bounded length and without
characters that control a terminal or end a line of the log.
"""

from __future__ import annotations

import difflib
import itertools
import re
import reprlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

# Characters that XML 1.0 (section 2.2) does not allow, and marks that end a line or reorder the text around them.
FORBIDDEN: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)

MAX_REASON: Final = 1000
_ECHO: Final = 100
_NAMES: Final = 100
_SHORT: Final = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = _ECHO
_SIZE: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:([kmgt])(i?)b|b|bytes)\s*", re.I)
_EXPECTED: Final = {
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float", "int_parsing_size"), "a whole number"),
    **dict.fromkeys(("float_parsing", "float_type"), "a number"),
    "finite_number": "a finite number",
    **dict.fromkeys(("bool_parsing", "bool_type"), "true or false"),
    "string_type": "text",
    **dict.fromkeys(("list_type", "tuple_type"), "a list"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type", "mapping_type"), "a table"),
    **dict.fromkeys(("path_type", "path_parsing"), "a path"),
    **dict.fromkeys(("literal_error", "enum"), "{expected}"),
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "too_short": "at least {min_length} values",
    "too_long": "at most {max_length} values",
    "string_too_short": "at least {min_length} characters",
    "string_too_long": "at most {max_length} characters",
    "json_invalid": "JSON ({error})",
}


def cut(text: str, limit: int = _ECHO) -> str:
    """Return the text; one longer than limit as its beginning, its end and its length."""
    if len(text) <= limit:
        return text
    return f"{text[: limit * 2 // 3]}...{text[-(limit // 4) :]} ({len(text):,} characters)"


def brief(value: object) -> str:
    """Return ``repr(value)``, of bounded length for long and deeply nested values."""
    try:
        return _SHORT.repr(value)
    except ValueError:  # an integer of more digits than Python converts to text
        return "a very long number"


def printable(text: str) -> str:
    r"""Return the text with control characters and bidirectional marks written as escapes such as ``\x1b``."""
    if text.isprintable():
        return text
    return FORBIDDEN.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def safe_text(text: str, limit: int = MAX_REASON) -> str:
    """Return the text cut and with control characters escaped, for an answer or a log line."""
    return printable(cut(text, limit))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``" (did you mean 'top_k'?)"`` for the most similar known name, or an empty text."""
    if len(name) > _ECHO:  # a typing mistake is short, and comparing long texts is slow
        return ""
    near = difflib.get_close_matches(name, list(itertools.islice(known, 1000)), n=1)
    return f" (did you mean '{cut(near[0])}'?)" if near else ""


def quoted(names: Iterable[str]) -> str:
    """Return names as messages list them, ``'a', 'b'``: at most _NAMES, and ``none`` when there are none."""
    every = list(names)
    shown = [f"'{cut(name)}'" for name in every[:_NAMES]]
    more = [f"and {len(every) - _NAMES} more"] if len(every) > _NAMES else []
    return ", ".join(shown + more) or "none"


def size_text(count: int) -> str:
    """Return a number of bytes with the largest unit that divides it: ``64 GiB``, ``10000 bytes``."""
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count and count % (1 << power) == 0:
            return f"{count >> power} {unit}"
    return f"{count} bytes"


def parse_size(text: str) -> int | None:
    """Return the number of bytes in ``64 GiB``, ``64GB`` or ``65536``; None if the text is not a size."""
    match = _SIZE.fullmatch(text)
    if match is None:
        return None
    power = " kmgt".index((match[2] or " ").lower())
    return round(float(match[1]) * float(1024 if match[3] else 1000) ** power)


def explain_validation(error: Mapping[str, Any]) -> str:
    """Return the reason in a pydantic error: ``expected a whole number, found 'x'``."""
    kind = error["type"]
    context = {key: f"{value:g}" if isinstance(value, float) else value for key, value in error.get("ctx", {}).items()}
    if kind == "missing":
        return "missing"
    if kind == "extra_forbidden":
        return "unknown key"
    if kind in ("value_error", "assertion_error"):
        return str(error["msg"]).partition(", ")[2]
    if (template := _EXPECTED.get(kind)) is None:
        template = f"{error['msg'][:1].lower()}{error['msg'][1:]}".replace("input should", "expected it to")
    else:
        template = f"expected {template.format_map(context)}"
    return f"{template}, found {safe_text(brief(error.get('input')))}"
