"""Text to tokens, and tokens to literals.

``(``, ``)``, ``,``, ``[`` and ``]`` are tokens; so is every longest run of other characters, a word. Space around a
word does not count; space within does, for a word may be the key of a dictionary.
Literals are spelled as PNNX parameters are: ``1``, ``-2.5e-3``, ``inf``, ``nan.0``, ``1.0e+00-2.0e+00j`` (or
``...+-2.0e+00j``), ``True``, ``False``, ``None``; any other word stands for itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from engine.errors import ExpressionError

MAX_LENGTH: Final = 1_000_000
"""Characters of the longest text that is read; converters write some hundred."""

PUNCTUATION: Final = frozenset("(),[]")

_TOKEN: Final = re.compile(r"[(),\[\]]|[^(),\[\]\s](?:[^(),\[\]]*[^(),\[\]\s])?")
_INTEGER: Final = re.compile(r"[-+]?[0-9]+")
_MAGNITUDE: Final = r"(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|(?:inf|nan)(?:\.0)?)"
_FLOAT: Final = re.compile(rf"[-+]?{_MAGNITUDE}")
_COMPLEX: Final = re.compile(rf"(?:([-+]?{_MAGNITUDE})\+?(?=[-+]))?([-+]?{_MAGNITUDE})j")
_NAMES: Final[dict[str, bool | None]] = {"None": None, "True": True, "False": False}
_INT64: Final = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A piece of an expression and the column it starts at, counted from 1."""

    text: str
    column: int

    def error(self, problem: str, *, expected: str) -> ExpressionError:
        """The error of finding this token where something else should be."""
        shown = repr(self.text if len(self.text) <= 40 else self.text[:40] + "...")
        return ExpressionError(problem, where=f"column {self.column}", found=shown, expected=expected)


def tokenize(text: str) -> list[Token]:
    """The tokens of a text.

    Raises:
        ExpressionError: for a text longer than MAX_LENGTH.
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionError("the expression is too long", found=f"{len(text):,} characters",
                              expected=f"at most {MAX_LENGTH:,}")  # fmt: skip
    return [Token(text=match.group(), column=match.start() + 1) for match in _TOKEN.finditer(text)]


def literal(token: Token) -> bool | int | float | complex | str | None:
    """The value a word stands for; floating numbers keep all digits that are written.

    Raises:
        ExpressionError: for an integer that 64 bits cannot hold.
    """
    text = token.text
    if text in _NAMES:
        return _NAMES[text]
    if _INTEGER.fullmatch(text):
        return _integer(token)
    if _FLOAT.fullmatch(text):
        return _float(text)
    if parts := _COMPLEX.fullmatch(text):
        return complex(_float(parts[1] or "0"), _float(parts[2]))
    return text


def _integer(token: Token) -> int:
    value = int(token.text) if len(token.text) <= 20 else _INT64.stop
    if value not in _INT64:
        raise token.error("the integer is too large", expected="one of 64 bits")
    return value


def _float(text: str) -> float:
    return float(text.removesuffix(".0")) if text.endswith(("inf.0", "nan.0")) else float(text)
