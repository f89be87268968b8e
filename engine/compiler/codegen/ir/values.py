"""Values and their types as IR writes them: constants, masks, vectors."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, TypeAlias

Precision: TypeAlias = Literal["float", "double"]
BYTES: Final[dict[Precision, int]] = {"float": 4, "double": 8}
_PRECISION: Final[ContextVar[Precision]] = ContextVar("precision", default="float")


@contextmanager
def written_in(precision: Precision) -> Iterator[None]:
    """What "float" stands for while a kernel is written: the same code computes with numbers of 32 or 64 bits."""
    token = _PRECISION.set(precision)
    try:
        yield
    finally:
        _PRECISION.reset(token)


def real(type_: str = "float") -> str:
    """A type as it is written now."""
    return _PRECISION.get() if type_ == "float" else type_


def real_bytes() -> int:
    """Bytes of a "float" as it is written now."""
    return BYTES[_PRECISION.get()]


@dataclass(frozen=True, slots=True)
class Value:
    """An SSA value or a constant: its text and its LLVM type (``i64``, ``float``, ``ptr``, ``<16 x float>``)."""

    text: str
    type: str


Index: TypeAlias = Value | int


def vector(lanes: int, of: str = "float") -> str:
    """The type of a vector; one lane is the scalar itself."""
    of = real(of)
    return of if lanes == 1 else f"<{lanes} x {of}>"


@lru_cache(256)  # of a few dozen types, each asked for a thousand times in a kernel
def lanes_of(type_: str) -> int:
    """How many elements a type holds."""
    found = re.match(r"<(\d+) x", type_)
    return int(found[1]) if found else 1


@lru_cache(256)
def element_of(type_: str) -> str:
    """The element type of a vector, or the type itself."""
    return type_[type_.index(" x ") + 3 : -1] if type_.startswith("<") else type_


def float_text(number: float) -> str:
    """A float32 constant as LLVM wants it: the bits of the nearest double, in hexadecimal."""
    try:
        (single,) = struct.unpack("<f", struct.pack("<f", number))
    except OverflowError:  # beyond float32's largest
        single = math.copysign(math.inf, number)
    (bits,) = struct.unpack("<Q", struct.pack("<d", single))
    return f"0x{bits:016X}"


def double_text(number: float) -> str:
    """A float64 constant as LLVM wants it."""
    (bits,) = struct.unpack("<Q", struct.pack("<d", number))
    return f"0x{bits:016X}"


def constant(number: float, type_: str) -> Value:
    """The same number in every lane of a float or integer type."""
    type_ = real(type_)
    element = element_of(type_)
    texts = {"float": float_text, "double": double_text}
    text = texts[element](float(number)) if element in texts else str(int(number))
    if type_ == element:
        return Value(text, type_)
    return Value("<" + ", ".join([f"{element} {text}"] * lanes_of(type_)) + ">", type_)


def mask(flags: Sequence[bool]) -> Value:
    """The mask that is on where a flag is."""
    bits = ", ".join(f"i1 {'true' if flag else 'false'}" for flag in flags)
    return Value(f"<{bits}>", vector(len(flags), "i1"))


def lanes_below(count: int, lanes: int) -> Value:
    """The mask that is on for the first ``count`` lanes."""
    return mask([lane < count for lane in range(lanes)])


def as_value(index: Index) -> Value:
    """An index as an i64 value."""
    return Value(str(index), "i64") if isinstance(index, int) else index


@lru_cache(256)
def mangled(type_: str) -> str:
    """A type as the names of intrinsics have it: ``f32``, ``v16f32``."""
    lanes, element = lanes_of(type_), element_of(type_)
    short = {"float": "f32", "double": "f64", "ptr": "p0"}.get(element, element)
    return short if lanes == 1 else f"v{lanes}{short}"
