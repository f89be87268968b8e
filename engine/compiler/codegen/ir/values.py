"""IR values and types: constants, masks, vectors."""

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


_FUSES: Final[ContextVar[bool]] = ContextVar("fuses", default=False)


@contextmanager
def written_in(precision: Precision, *, fuses: bool) -> Iterator[None]:
    """Set what code is written for while a kernel is emitted.

    Args:
        precision: type that "float" stands for, so that one generator serves 32 and 64 bits.
        fuses: whether a product and a sum are rounded once.
    """
    tokens = _PRECISION.set(precision), _FUSES.set(fuses)
    try:
        yield
    finally:
        _PRECISION.reset(tokens[0])
        _FUSES.reset(tokens[1])


def fuses_products() -> bool:
    """Return whether a product and a sum are rounded once; ``Function.fma`` is exact then."""
    return _FUSES.get()


def real(type_: str = "float") -> str:
    """Return a type with "float" replaced by the current precision."""
    return _PRECISION.get() if type_ == "float" else type_


def real_bytes() -> int:
    """Return the bytes of a "float" in the current precision."""
    return BYTES[_PRECISION.get()]


@dataclass(frozen=True, slots=True)
class Value:
    """SSA value or constant: its text and its LLVM type (``i64``, ``float``, ``ptr``, ``<16 x float>``)."""

    text: str
    type: str


Index: TypeAlias = Value | int


def vector(lanes: int, of: str = "float") -> str:
    """Return the type of a vector; one lane is the scalar itself."""
    of = real(of)
    return of if lanes == 1 else f"<{lanes} x {of}>"


@lru_cache(256)  # a few dozen types, each needed a thousand times in a kernel
def lanes_of(type_: str) -> int:
    """Return the number of elements of a type."""
    found = re.match(r"<(\d+) x", type_)
    return int(found[1]) if found else 1


@lru_cache(256)
def element_of(type_: str) -> str:
    """Return the element type of a vector, or the type itself."""
    return type_[type_.index(" x ") + 3 : -1] if type_.startswith("<") else type_


def float_text(number: float) -> str:
    """Return a float32 constant as LLVM requires it: the bits of the nearest double, in hexadecimal."""
    try:
        (single,) = struct.unpack("<f", struct.pack("<f", number))
    except OverflowError:  # beyond float32's largest
        single = math.copysign(math.inf, number)
    (bits,) = struct.unpack("<Q", struct.pack("<d", single))
    return f"0x{bits:016X}"


def double_text(number: float) -> str:
    """Return a float64 constant as LLVM requires it."""
    (bits,) = struct.unpack("<Q", struct.pack("<d", number))
    return f"0x{bits:016X}"


def constant(number: float, type_: str) -> Value:
    """Return a number in every lane of a float or integer type."""
    type_ = real(type_)
    element = element_of(type_)
    texts = {"float": float_text, "double": double_text}
    text = texts[element](float(number)) if element in texts else str(int(number))
    if type_ == element:
        return Value(text, type_)
    return Value("<" + ", ".join([f"{element} {text}"] * lanes_of(type_)) + ">", type_)


def mask(flags: Sequence[bool]) -> Value:
    """Return a constant mask."""
    bits = ", ".join(f"i1 {'true' if flag else 'false'}" for flag in flags)
    return Value(f"<{bits}>", vector(len(flags), "i1"))


def lanes_below(count: int, lanes: int) -> Value:
    """Return the constant mask of the first ``count`` lanes."""
    return mask([lane < count for lane in range(lanes)])


def as_value(index: Index) -> Value:
    """Return an index as an i64 value."""
    return Value(str(index), "i64") if isinstance(index, int) else index


@lru_cache(256)
def mangled(type_: str) -> str:
    """Return a type as in the names of intrinsics: ``f32``, ``v16f32``."""
    lanes, element = lanes_of(type_), element_of(type_)
    short = {"float": "f32", "double": "f64", "ptr": "p0"}.get(element, element)
    return short if lanes == 1 else f"v{lanes}{short}"
