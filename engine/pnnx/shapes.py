"""Shapes as spelled in the text: ``(1,?,3)f32``, for attributes and for annotations of operands.

A dimension is decimal, ``?`` if dynamic, or ``%name`` (the converter's pattern language), which is the same as ``?``.
Limits keep every product of dimensions within what numpy and a file can hold.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

from engine.errors import ParamSyntaxError, WeightsError, quoted
from engine.tensor import DTYPES, Dim, Shape

MAX_RANK: Final = 16
MAX_DIM: Final = 2**31
_MAX_BYTES: Final = 2**63 - 1

_FORM = re.compile(r"\(([^()]*)\)([A-Za-z0-9_]*)")
_DIGITS = re.compile(r"[0-9]+")
_SYMBOL = re.compile(r"%[A-Za-z0-9_]+")
# Two float16; as complex64 in memory it takes twice as much.
_STORED_C32: Final = 4


@dataclass(frozen=True, slots=True)
class Announcement:
    """Shape and dtype code of an annotation or an attribute."""

    shape: Shape
    code: str

    def __str__(self) -> str:
        return f"({','.join('?' if dim is None else str(dim) for dim in self.shape)}){self.code}"


@dataclass(frozen=True, slots=True)
class Declaration:
    """Declaration of an attribute in the text; its values are in the archive."""

    shape: tuple[int, ...]
    code: str

    @property
    def size_bytes(self) -> int:
        """Bytes of the attribute in the archive."""
        return math.prod(self.shape) * stored_itemsize(self.code)


def stored_itemsize(code: str) -> int:
    """Return the bytes of an element in the archive."""
    return _STORED_C32 if code == "c32" else DTYPES[code].itemsize


def parse_annotation(text: str) -> Announcement:
    """Return the shape and dtype of an operand; the code may be ``null``.

    Raises:
        ParamSyntaxError: it is not a list of dimensions and a known code.
    """
    announced = _parse(text)
    if announced.code != "null" and announced.code not in DTYPES:
        raise ParamSyntaxError("unknown dtype", found=quoted(announced.code), expected=_codes("null"))
    return announced


def parse_declaration(text: str) -> Declaration:
    """Return the shape and dtype of an attribute: every dimension known, and not too large for a file.

    Raises:
        ParamSyntaxError: for a shape that is malformed, dynamic or too large.
        WeightsError: for an unknown dtype, including ``null``.
    """
    announced = _parse(text)
    if announced.code not in DTYPES:
        raise WeightsError("unknown dtype of an attribute", found=quoted(announced.code), expected=_codes())
    shape = tuple(dim for dim in announced.shape if dim is not None)
    if len(shape) != len(announced.shape):
        raise ParamSyntaxError(
            "an attribute has a dynamic dimension", found=quoted(text), expected="decimal dimensions"
        )
    # Without zeros: numpy refuses the product of the other dimensions too.
    if math.prod(dim for dim in shape if dim) * DTYPES[announced.code].itemsize > _MAX_BYTES:
        raise ParamSyntaxError("an attribute is too large", found=quoted(text), expected="fewer than 2**63 bytes")
    return Declaration(shape, announced.code)


def _parse(text: str) -> Announcement:
    form = _FORM.fullmatch(text)
    if form is None:
        raise ParamSyntaxError("not a shape", found=quoted(text), expected="dimensions and dtype, as in (1,?,3)f32")
    if form[1].count(",") >= MAX_RANK:
        raise ParamSyntaxError("too many dimensions", found=form[1].count(",") + 1, expected=f"at most {MAX_RANK}")
    return Announcement(tuple(map(_parse_dim, form[1].split(","))) if form[1] else (), form[2])


def _parse_dim(text: str) -> Dim:
    if text == "?" or _SYMBOL.fullmatch(text):
        return None
    if not _DIGITS.fullmatch(text):
        raise ParamSyntaxError("not a dimension", found=quoted(text), expected="a decimal number or ?")
    if len(text) > 10 or int(text) > MAX_DIM:
        raise ParamSyntaxError("a dimension is too large", found=quoted(text), expected=f"at most {MAX_DIM}")
    return int(text)


def _codes(*more: str) -> str:
    return "one of " + ", ".join((*DTYPES, *more))
