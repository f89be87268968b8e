"""Values of parameters, whose type is inferred from the spelling, as the text states none.

In this order a text is

    null      ``None``, ``()``, ``[]``: the format cannot tell an empty list from nothing
    bool      ``True``, ``False``
    list      in round or square brackets, split at every comma; elements by the rules around this one
    int       digits, at most 64 bits
    float     a C decimal that starts with a digit, or ``inf``, ``nan``, ``nan.0`` (a printing fault of the converter)
    complex   ``1.0e+00+-2.0e+00j`` or ``1.0-2.0j``
    string    anything else

A parameter called ``expr`` is always text: ``expr=[None,@0]`` and ``expr=0`` have a grammar of their own.
Floats keep the double that their decimal text denotes. They are written like the converter does if that text denotes
the same double, else with more digits.
"""

from __future__ import annotations

import math
import re
from typing import Final

from engine.errors import ParamSyntaxError, quoted
from engine.pnnx.graph import Parameter, Scalar

_WORDS: Final[dict[str, bool | None]] = {"None": None, "True": True, "False": False}
_CLOSING: Final = {"(": ")", "[": "]"}
# Longer digit strings come from damaged files, and take quadratic time to convert.
_MAX_NUMBER = 64
_MIN_INT, _MAX_INT = -(2**63), 2**63 - 1

_DECIMAL = r"[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?"
_REAL = rf"(?:{_DECIMAL}|(?:inf|nan)(?:\.0)?)"
_INT = re.compile(r"-?[0-9]+")
_FLOAT = re.compile(rf"-?{_REAL}")
# The sign between the parts is not optional, so that no text can be split in more ways than one.
_COMPLEX = re.compile(rf"(?:(-?{_REAL})([+-])(-?{_REAL})|(-?{_DECIMAL}))j")
_EXPONENT = re.compile(r"e(-?)\+?0*([0-9])")


def parse_parameter(key: str, text: str) -> Parameter:
    """Return the value of ``key=text``.

    Raises:
        ParamSyntaxError: for a list that is not closed or has an empty element, and for numbers beyond 64 bits.
    """
    if key == "expr":
        return text
    if text in ("()", "[]"):
        return None
    if text[:1] in _CLOSING:
        return _parse_list(text)
    return _parse_scalar(text)


def format_parameter(value: Parameter) -> str:
    """Return the text of a value, as the converter spells it."""
    if isinstance(value, tuple):
        return f"({','.join(_format_scalar(item) for item in value)})"
    return _format_scalar(value)


def format_float(value: float) -> str:
    """Return the shortest of the converter's spellings that denotes exactly this double."""
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0.0"
    style = ("g", ".9g") if 1e-4 <= abs(value) < 1e6 else ("e", ".8e")
    spellings = (format(value, how) for how in style)
    text = next((text for text in spellings if float(text) == value), repr(value))
    text = _EXPONENT.sub(r"e\1\2", text)
    return text if "." in text or "e" in text else f"{text}.0"


def _parse_list(text: str) -> Parameter:
    if len(text) < 2 or text[-1] != _CLOSING[text[0]]:
        raise ParamSyntaxError("a list is not closed", found=quoted(text), expected=f"a final {_CLOSING[text[0]]!r}")
    items = [item.strip(" ") for item in text[1:-1].split(",")]
    if "" in items:
        raise ParamSyntaxError("a list has an empty element", found=quoted(text))
    return tuple(map(_parse_scalar, items))


def _parse_scalar(text: str) -> Scalar:
    if text in _WORDS:
        return _WORDS[text]
    if text[:1] not in "-0123456789in":
        return text
    if _INT.fullmatch(text):
        return _parse_int(text)
    if _FLOAT.fullmatch(text):
        return _parse_float(text)
    if parts := _COMPLEX.fullmatch(text):
        return _parse_complex(parts)
    return text


def _parse_int(text: str) -> int:
    value = int(_checked(text))
    if not _MIN_INT <= value <= _MAX_INT:
        raise ParamSyntaxError("an integer is out of range", found=text, expected="64 bits")
    return value


def _parse_float(text: str) -> float:
    return float(_checked(text).removesuffix(".0") if "n" in text else _checked(text))


def _parse_complex(parts: re.Match[str]) -> complex:
    real, sign, imaginary, alone = parts.groups()
    if alone is not None:
        return complex(0.0, _parse_float(alone))
    size = _parse_float(imaginary)
    return complex(_parse_float(real), -size if sign == "-" else size)


def _checked(text: str) -> str:
    if len(text) > _MAX_NUMBER:
        raise ParamSyntaxError("a number is too long", found=quoted(text), expected=f"at most {_MAX_NUMBER} characters")
    return text


def _format_scalar(value: Scalar) -> str:
    if isinstance(value, float):
        return format_float(value)
    if isinstance(value, complex):
        return f"{format_float(value.real)}+{format_float(value.imag)}j"
    return str(value)
