"""Small tensors whose elements may be symbolic: numpy arrays of objects with a spec of int64 or float32.

An array of objects without symbolic elements becomes one of numbers. Texts are arrays of objects as well;
``holds_sizes`` distinguishes them.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from engine.ir.dims import Dim, largest, smallest, specialise
from engine.ir.ratios import (
    FLOAT32_BITS,
    FLOAT64_BITS,
    Ratio,
    add,
    is_real,
    parts,
    subtract,
    truncate,
)

INT64: Final = np.dtype(np.int64)
FLOAT32: Final = np.dtype(np.float32)
_TO_THE_END: Final = 2**31 - 1
"""No axis is longer; files write it for "to the end"."""


def holds_sizes(value: object) -> bool:
    """Return whether a value is an array with a symbolic number in it."""
    return isinstance(value, np.ndarray) and value.dtype.hasobject and any(map(_is_symbolic, value.flat))


def _is_symbolic(value: object) -> bool:
    return isinstance(value, (Dim, Ratio))


def has_sizes(value: object) -> bool:
    """Return whether a value is a symbolic number, or a list or an array with one in it."""
    if type(value) is np.ndarray:
        return value.dtype.hasobject and holds_sizes(value)
    if isinstance(value, (tuple, list)):
        return any(map(has_sizes, value))
    return _is_symbolic(value)


def size_array(sizes: Any) -> NDArray[Any]:
    """Return numbers as an array: of objects where one of them is symbolic, else of int64 or float32."""
    array = np.array(sizes, np.object_)
    return array if holds_sizes(array) else array.astype(sizes_dtype(array))


def sizes_dtype(array: Any) -> np.dtype[Any]:
    """Return the dtype of an array of objects: float32 if a number in it is floating, else int64."""
    return FLOAT32 if any(map(is_real, array.flat)) else INT64


def specialise_sizes(value: Any) -> Any:
    """Return a value with symbolic numbers as their hints, guarded."""
    if isinstance(value, tuple | list):
        return type(value)(map(specialise_sizes, value))
    if holds_sizes(value):
        return np.array([specialise_sizes(each) for each in value.flat], sizes_dtype(value)).reshape(value.shape)
    return value.specialise() if _is_symbolic(value) else value


def as_reals(array: NDArray[Any]) -> NDArray[Any]:
    """Return symbolic sizes as float32.

    Raises:
        InexactError: float32 does not hold one of them.
    """
    return np.array([add(each, 0, FLOAT32_BITS) for each in array.flat], np.object_).reshape(array.shape)


def as_whole(array: NDArray[Any]) -> NDArray[Any]:
    """Return symbolic numbers rounded towards zero."""
    return size_array([truncate(each) for each in array.flat]).reshape(array.shape)


def slice_length(piece: slice, length: int) -> int:
    """Return the number of elements of an axis in a slice."""
    if type(length) is int and not has_sizes((piece.start, piece.stop, piece.step)):
        return len(range(*piece.indices(length)))
    step = specialise(1 if piece.step is None else piece.step)
    if step > 0:
        span = slice_bound(piece.stop, length, length) - slice_bound(piece.start, length, 0)
    else:
        span = slice_bound(piece.start, length, length - 1, -1) - slice_bound(piece.stop, length, -1, -1)
    return largest(-(-span // abs(step)), 0)


def slice_bound(bound: int | None, length: int, default: int, shift: int = 0) -> int:
    """Return a bound of a slice counted from the front and clipped to the axis.

    Args:
        bound: None stands for the default.
        shift: -1 for a backward slice, whose bounds are -1 to length - 1.
    """
    if bound is None:
        return default
    if bound < 0:
        return largest(bound + length, shift)
    return length + shift if not has_sizes(bound) and bound >= _TO_THE_END else smallest(bound, length + shift)


def step_count(start: Any, end: Any, step: Any) -> int:
    """Return the number of steps from one number to another, exclusive; negative if they lead away from it.

    Raises:
        InexactError: rounding decides.
    """
    (span, by), (stride, divisor) = parts(subtract(end, start, FLOAT64_BITS)), parts(step)
    count: int = -(-span * divisor // (by * specialise(stride)))
    return count
