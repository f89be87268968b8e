"""What no tensor and no parameter may exceed, looked at before memory is asked for or a loop begins.

Sizes are products of Python integers, which do not wrap. The memory that counts is what this process may ever have
(resources.py).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import lru_cache
from typing import Final

import numpy as np

from engine.errors import ShapeError
from engine.ir.dims import hint, is_symbolic
from engine.memory.resources import total_memory_bytes
from engine.tensor import DType, Shape, TensorSpec, format_shape

MAX_RANK: Final = 64
"""Dimensions numpy can have."""

MAX_ITEMS: Final = 2**16
"""Items of a list given as a parameter: a thousand times what the longest real ones have."""

INT_RANGE: Final = range(-(2**63), 2**63)
"""What an integer of a graph may be: the format and every tensor hold 64 bits."""

MAX_NESTING: Final = 32
"""Tuples, lists and dicts inside each other that a value may be."""

MAX_STEPS: Final = 2**20
"""Turns of a loop of Python that a parameter alone can ask for; each turn computes an array."""

MEMORY_RETRY_S: Final = 10.0
"""Time after which what could not be compiled for lack of memory is tried again."""

_UNSHOWN: Final = 8
# What a layer may lay out on the way: so much in any case, so many times its operands and result where those are large.
_SCRATCH: Final = 1 << 28
_TIMES: Final = 64
# What nobody is asked about, and what an array takes beside its elements.
_LITTLE: Final = 1 << 24
_OBJECT: Final = 128


Room = Callable[[int], None]
_room: ContextVar[Room | None] = ContextVar("room", default=None)


class _Asking:
    __slots__ = ("_room", "_token")

    def __init__(self, room: Room) -> None:
        self._room = room

    def __enter__(self) -> None:
        outer, room = _room.get(), self._room
        if outer is None or outer == room:
            self._token = _room.set(room)
            return

        def both(size: int) -> None:
            outer(size)
            room(size)

        self._token = _room.set(both)

    def __exit__(self, *exc: object) -> None:
        _room.reset(self._token)


def asking_for_room(room: Room) -> AbstractContextManager[None]:
    """Call this with the bytes of every tensor whose size is looked at, before it is made, while the block runs;
    who was to be asked before is asked too.

    Sizes that values decide (padding that is an input, repetitions, ranges) are known to nobody before a run.

    Args:
        room: raises ShapeError where there is none.
    """
    return _Asking(room)


@lru_cache(maxsize=1)
def memory_bytes() -> int:
    """Memory this process may have in all; found out once."""
    return total_memory_bytes()


def check_size(shape: Sequence[int | None], dtype: DType, what: str = "the result") -> None:
    """Refuse a tensor that cannot be: too many dimensions, a negative one, or more bytes than half the memory.

    A run holds more than one tensor; one that leaves no room for a second cannot be computed from anything.

    Args:
        shape: open dimensions count as one.
        what: what the tensor is, for the message.

    Raises:
        ShapeError: naming the shape, and both sizes in bytes.
    """
    if len(shape) > MAX_RANK:
        raise ShapeError(f"{what} has too many dimensions", found=len(shape), expected=f"at most {MAX_RANK}")
    known = [dim for dim in shape if dim is not None]
    if any(type(dim) is not int or dim < 0 for dim in known) and not all(map(_is_dimension, known)):
        raise ShapeError(f"{what} has a dimension that is none", found=show_shape(shape), expected="integers >= 0")
    _check_bytes(known, dtype, memory_bytes() // 2, what)


def check_scratch(shape: Sequence[int | None], dtype: DType, of_bytes: int, what: str) -> None:
    """Refuse a tensor that is only made on the way, if it is out of all proportion to what is computed from and to.

    Args:
        shape: open dimensions count as one.
        of_bytes: of the operands and the result.

    Raises:
        ShapeError: naming the shape, and both sizes in bytes.
    """
    check_size(shape, dtype, what)
    _check_bytes([dim for dim in shape if dim is not None], dtype, max(_SCRATCH, _TIMES * hint(of_bytes)), what)


class RoomError(ShapeError):
    """There is no memory for a tensor, as told from errors that an operator's own words would be better for."""


class Held:
    """What is kept turn after turn of a loop, of which none is large by itself."""

    __slots__ = ("_asked", "_bytes")

    def __init__(self) -> None:
        self._bytes, self._asked = 0, _LITTLE

    def add(self, size: int) -> None:
        """Keep so many bytes more.

        Raises:
            ShapeError: they are too many by now.
        """
        self._bytes += size + _OBJECT
        if self._bytes > self._asked:  # each time that they have doubled
            self._asked = 2 * self._bytes
            _check_bytes([self._bytes], np.dtype(np.uint8), memory_bytes() // 2, "what the turns of a loop leave")


def check_steps(steps: int, what: str, most: int = MAX_STEPS) -> None:
    """Refuse a loop that nobody would wait for.

    Raises:
        ShapeError: naming both numbers.
    """
    if hint(steps) > most:
        raise ShapeError(f"too many {what}", found=steps, expected=f"at most {most:,}")


def check_items(value: object) -> None:
    """Refuse tuples, lists and dicts that hold too much: one that holds another twice doubles with each operator.

    Raises:
        ShapeError: more than MAX_ITEMS values in all, or more than MAX_NESTING containers inside each other.
    """
    level, depth, count = [value], 0, 0
    while inner := [each for each in level if isinstance(each, (tuple, list, dict))]:
        depth, level = depth + 1, []
        for each in inner:
            count += len(each)
            if count > MAX_ITEMS:
                raise ShapeError("too many values in a list", found="more", expected=f"at most {MAX_ITEMS:,} in all")
            level.extend(each.values() if isinstance(each, dict) else each)
        if depth > MAX_NESTING:
            raise ShapeError("lists are nested too deep", found=depth, expected=f"at most {MAX_NESTING}")


def _is_dimension(dim: object) -> bool:
    try:
        return bool(dim >= 0) if is_symbolic(dim) else operator.index(dim) >= 0  # type: ignore[arg-type, operator]
    except TypeError:
        return False


def _check_bytes(known: Sequence[int], dtype: DType, most: int, what: str) -> None:
    # Zeros are left out: numpy refuses the product of the other dimensions too. Of a symbolic size the hint counts: a
    # limit is looked at again for the sizes of a run.
    numbers = [dim if type(dim) is int else int(hint(dim)) for dim in known]
    size = math.prod([number for number in numbers if number]) * dtype.itemsize
    room = _room.get()
    if room is not None:
        try:
            room(size)
        except ShapeError as error:
            raise RoomError.like(error) from None
    if size > most:
        found = f"{show_shape(known)} {dtype.name}" + (f", {size:,} bytes" if size in INT_RANGE else "")
        raise RoomError(f"{what} is too large", found=found, expected=f"at most {most:,} bytes")


def check_results(value: object) -> None:
    """Refuse what a layer announces, if a tensor in it cannot be.

    Raises:
        ShapeError: see check_size().
    """
    if isinstance(value, TensorSpec):
        check_size(value.shape, value.dtype)
    elif isinstance(value, (tuple, list)):
        for item in value:
            check_results(item)


def show_shape(shape: Shape | Sequence[int | None]) -> str:
    """A shape as messages print it, cut short where it has more dimensions than anybody reads."""
    short = format_shape(shape[:_UNSHOWN])
    return short if len(shape) <= _UNSHOWN else f"{short[:-1]}, ... ({len(shape)} in all)]"
