"""What a report was made from, as JSON that a person can scroll through: a list of numbers is one line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

# A clock of nanoseconds says no more of a run that takes milliseconds.
DIGITS: Final = 6


def raw_text(data: Any) -> str:
    """`data` as JSON: an object or list a line, but lists of plain values on one; numbers to six digits."""
    return _spelled(data, "") + "\n"


def _spelled(data: Any, indent: str) -> str:
    inner = f"{indent} "
    if isinstance(data, Mapping) and data:
        return _block(
            "{}", [f"{json.dumps(str(key))}: {_spelled(value, inner)}" for key, value in data.items()], indent
        )
    if isinstance(data, Sequence) and not isinstance(data, str) and any(map(_is_nested, data)):
        return _block("[]", [_spelled(value, inner) for value in data], indent)
    return json.dumps(_rounded(data))


def _block(brackets: str, lines: Sequence[str], indent: str) -> str:
    body = ",".join(f"\n{indent} {line}" for line in lines)
    return f"{brackets[0]}{body}\n{indent}{brackets[1]}"


def _is_nested(value: Any) -> bool:
    return isinstance(value, Mapping | Sequence) and not isinstance(value, str)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    return value
