"""Nested lists of JSON values -> arrays. The model's dtype rules: JSON only knows numbers.

Whole numbers fit a float input; numbers with a fraction never fit an integer one; true and false fit bool only. Complex
inputs need base64 or .npy.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import engine
from app.codec.json.lists import Numbers
from app.codec.json.pieces import even_size
from app.errors import InputMismatchError, InvalidRequestError
from app.memory.allowance import check
from app.signature import describe
from app.small_arrays import all_finite, few_values
from app.string_tensors import from_lists, is_text

_WIDE: Final = np.dtype(np.float64)
# Values that are converted at a time.
_PIECE: Final = 1 << 18
_SPELLINGS: Final = {
    dict: "an object", str: "a string", type(None): "null", bool: "true or false", float: "a number with a fraction",
}  # fmt: skip


def to_array(value: object, port: engine.Port, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Nested lists of numbers, nothing rounded to a whole number and nothing out of range, or of texts as a tensor.

    Raises:
        InputMismatchError: not evenly nested, other values than the dtype has, or out of its range.
        InvalidRequestError: JSON has no numbers of that dtype.
    """
    if isinstance(value, Numbers):
        array = value.read(dtype)
        if array is not None:
            return array
        value = value.plain()
    if is_text(dtype):
        return from_lists(value, port)
    try:
        if dtype.kind == "b":
            return _bools(value, port)
        if dtype.kind in "iu":
            return _integers(value, port, dtype)
        if dtype.kind == "c":
            raise InvalidRequestError(f"input '{port.name}' is {dtype.name}: send it as 'b64' or .npy")
        return _floats(value, port, dtype)
    except (ValueError, TypeError) as exc:
        raise _not_a_tensor(value, port, exc) from None
    except (OverflowError, FloatingPointError):
        raise InputMismatchError(
            f"input '{port.name}': a value is out of range, expected values of {dtype.name}", input=port.name
        ) from None


def _floats(value: object, port: engine.Port, dtype: np.dtype[Any]) -> NDArray[Any]:
    if type(_first(value)) is bool:
        raise _wrong_kind(port, bool)
    wide = _numbers(value, _WIDE)
    few = few_values(wide)
    if few is not None and all_finite(few) and max(map(abs, few), default=0.0) < _largest(dtype):
        return wide.astype(dtype)
    if np.isnan(wide).any() and type(None) in _leaf_types(value):  # numpy reads null as NaN
        raise _wrong_kind(port, type(None))
    with np.errstate(over="raise"):
        return wide.astype(dtype)


@lru_cache(maxsize=32)
def _largest(dtype: np.dtype[Any]) -> float:
    """Smaller numbers are no infinity in it."""
    return float(np.finfo(dtype).max) if dtype.kind == "f" else 0.0


def _integers(value: object, port: engine.Port, dtype: np.dtype[Any]) -> NDArray[Any]:
    kinds = _leaf_types(value)
    for kind in kinds - {int, float}:
        raise _wrong_kind(port, kind)
    if float not in kinds:
        return _numbers(value, dtype)
    wide = _numbers(value, np.dtype(np.float64))
    if not np.array_equal(wide, np.rint(wide)):
        raise _wrong_kind(port, float)
    limits = np.iinfo(dtype)
    if wide.size and (wide.min() < limits.min or wide.max() > limits.max):
        raise OverflowError
    return wide.astype(dtype)


def _bools(value: object, port: engine.Port) -> NDArray[Any]:
    for kind in _leaf_types(value) - {bool}:
        raise InputMismatchError(
            f"input '{port.name}': found {_SPELLINGS.get(kind, 'a number')}, expected true or false", input=port.name
        )
    return _numbers(value, np.dtype(np.bool_))


def _numbers(value: object, dtype: np.dtype[Any]) -> NDArray[Any]:
    """What np.array makes of nested lists, made of pieces: other threads cannot run while it works on one.

    Raises:
        ValueError: the lists are not evenly nested.
    """
    row = even_size(value[0]) if isinstance(value, list) and value else 0
    if not isinstance(value, list) or row * len(value) <= _PIECE:
        return np.array(value, dtype)
    step = max(1, _PIECE // row)
    whole: NDArray[Any] | None = None
    for start in range(0, len(value), step):
        check()
        piece = np.array(value[start : start + step], dtype) if row <= _PIECE else _numbers(value[start], dtype)[None]
        if whole is None:
            whole = np.empty((len(value), *piece.shape[1:]), dtype)
        if piece.shape[1:] != whole.shape[1:]:
            raise ValueError("the lists are not evenly nested")
        whole[start : start + step] = piece
    assert whole is not None
    return whole


def _leaf_types(value: object) -> set[type]:
    """The types of what is no list, in nested lists."""
    kinds: set[type] = set()
    if isinstance(value, list):
        _collect(value, kinds)
        return kinds
    return {type(value)}


def _collect(values: list[Any], kinds: set[type]) -> None:
    kinds.update(map(type, values))  # one set for all of them: a body may hold millions of empty lists
    if list in kinds:
        kinds.discard(list)
        for item in values:
            if type(item) is list:
                _collect(item, kinds)


def _first(value: object) -> object:
    while isinstance(value, list) and value:
        value = value[0]
    return value


def _wrong_kind(port: engine.Port, kind: type) -> InputMismatchError:
    return InputMismatchError(
        f"input '{port.name}': found {_SPELLINGS.get(kind, kind.__name__)}, expected numbers for {describe(port)}",
        input=port.name,
        found=_SPELLINGS.get(kind, kind.__name__),
        expected=describe(port),
    )


def _not_a_tensor(value: object, port: engine.Port, exc: Exception) -> InputMismatchError:
    for kind in _leaf_types(value) - {int, float, bool}:
        return _wrong_kind(port, kind)
    found = "lists of unequal length" if isinstance(exc, ValueError) else spelling(value)
    return InputMismatchError(
        f"input '{port.name}': found {found}, expected evenly nested lists of numbers for {describe(port)}",
        input=port.name,
        found=found,
        expected=describe(port),
    )


def spelling(value: object) -> str:
    """What a value is, in JSON's words."""
    return _SPELLINGS.get(type(value), "a list" if isinstance(value, list) else "a number")
