"""Limits of tensors and parameters, checked before memory is allocated or a loop begins.

Sizes are products of Python integers, which do not wrap. The memory limit is what this process may ever have
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
"""Largest number of dimensions in numpy."""

MAX_ITEMS: Final = 2**16
"""Longest list given as a parameter: a thousand times the longest real ones."""

INT_RANGE: Final = range(-(2**63), 2**63)
"""Range of integers in a graph: the format and every tensor hold 64 bits."""

MAX_NESTING: Final = 32
"""Deepest nesting of tuples, lists and dicts in a value."""

MAX_STEPS: Final = 2**20
"""Iterations of a Python loop that a parameter alone can ask for; each computes an array."""

MEMORY_RETRY_S: Final = 10.0
"""Seconds after which a compilation that failed for lack of memory is retried."""

_UNSHOWN: Final = 8
# Intermediate bytes a layer may use: this many in any case, or this multiple of its operands and result.
_SCRATCH: Final = 1 << 28
_TIMES: Final = 64
# Bytes too few to ask for, and bytes of an array object in addition to its elements.
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
    """Call ``room`` with the bytes of every tensor before it is made, while the block runs, and then outer callbacks.

    Sizes that values decide (padding that is an input, repetitions, ranges) are unknown before a run.

    Args:
        room: raises ShapeError if there is not enough memory.
    """
    return _Asking(room)


@lru_cache(maxsize=1)
def memory_bytes() -> int:
    """Return the memory this process may have in all; determined once."""
    return total_memory_bytes()


def check_size(shape: Sequence[int | None], dtype: DType, what: str = "the result") -> None:
    """Refuse a tensor with too many dimensions, a negative one, or more bytes than half the memory.

    A run holds more than one tensor; one that leaves no room for a second cannot be computed from anything.

    Args:
        shape: dynamic dimensions count as one.
        what: noun for the message.

    Raises:
        ShapeError: naming the shape, and both sizes in bytes.
    """
    if len(shape) > MAX_RANK:
        raise ShapeError(f"{what} has too many dimensions", found=len(shape), expected=f"at most {MAX_RANK}")
    known = [dim for dim in shape if dim is not None]
    if any(type(dim) is not int or dim < 0 for dim in known) and not all(map(_is_dimension, known)):
        raise ShapeError(f"{what} has an invalid dimension", found=show_shape(shape), expected="integers >= 0")
    _check_bytes(known, dtype, memory_bytes() // 2, what)


def check_scratch(shape: Sequence[int | None], dtype: DType, of_bytes: int, what: str) -> None:
    """Refuse an intermediate tensor that is far larger than the operands and the result.

    Args:
        shape: dynamic dimensions count as one.
        of_bytes: of the operands and the result.

    Raises:
        ShapeError: naming the shape, and both sizes in bytes.
    """
    check_size(shape, dtype, what)
    _check_bytes([dim for dim in shape if dim is not None], dtype, max(_SCRATCH, _TIMES * hint(of_bytes)), what)


class RoomError(ShapeError):
    """There is no memory for a tensor; a class of its own, as some operators replace other errors by theirs."""


class LoopBytes:
    """Bytes kept over the iterations of a loop, none of which is large by itself."""

    __slots__ = ("_asked", "_bytes")

    def __init__(self) -> None:
        self._bytes, self._asked = 0, _LITTLE

    def add(self, size: int) -> None:
        """Count so many bytes more.

        Raises:
            ShapeError: they exceed the limit.
        """
        self._bytes += size + _OBJECT
        if self._bytes > self._asked:  # each time they have doubled
            self._asked = 2 * self._bytes
            _check_bytes([self._bytes], np.dtype(np.uint8), memory_bytes() // 2, "the results of a loop")


def check_steps(steps: int, what: str, most: int = MAX_STEPS) -> None:
    """Refuse a loop of too many iterations.

    Raises:
        ShapeError: naming both numbers.
    """
    if hint(steps) > most:
        raise ShapeError(f"too many {what}", found=steps, expected=f"at most {most:,}")


def check_items(value: object) -> None:
    """Refuse tuples, lists and dicts with too many values: one that holds another twice doubles with each operator.

    Raises:
        ShapeError: more than MAX_ITEMS values in all, or more than MAX_NESTING containers inside each other.
    """
    level, depth, count = [value], 0, 0
    while inner := [each for each in level if isinstance(each, (tuple, list, dict))]:
        depth, level = depth + 1, []
        for each in inner:
            count += len(each)
            if count > MAX_ITEMS:
                raise ShapeError(
                    "too many values in a list",
                    found=f"more than {MAX_ITEMS:,}",
                    expected=f"at most {MAX_ITEMS:,} in all",
                )
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
    """Refuse an announced result with a tensor that exceeds the limits.

    Raises:
        ShapeError: see check_size().
    """
    if isinstance(value, TensorSpec):
        check_size(value.shape, value.dtype)
    elif isinstance(value, (tuple, list)):
        for item in value:
            check_results(item)


def show_shape(shape: Shape | Sequence[int | None]) -> str:
    """Return a shape as printed in messages, cut when it has very many dimensions."""
    short = format_shape(shape[:_UNSHOWN])
    return short if len(shape) <= _UNSHOWN else f"{short[:-1]}, ... ({len(shape)} in all)]"
