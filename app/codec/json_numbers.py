"""Conversion of nested lists of JSON values to arrays. The model's dtype decides, since JSON only has numbers.

A float input accepts whole numbers; an integer input accepts no fractions; only a bool input accepts true and false.
Complex inputs need base64 or .npy.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import engine
from app.arrays import all_finite, few_values, from_lists, is_text
from app.codec.json_lists import LongList
from app.errors import InputMismatchError, InvalidRequestError
from app.signature import describe

_WIDE: Final = np.dtype(np.float64)
# Integers below it are exact in float64.
_EXACT: Final = 2.0**53
_LEAST_INT64: Final = -(2.0**63)
_TYPE_NAMES: Final = {
    dict: "an object", str: "a string", type(None): "null", bool: "true or false", float: "a number with a fraction",
}  # fmt: skip


def to_array(value: object, port: engine.Port, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return nested lists of numbers, without rounding to integers or overflow, or of strings as a tensor.

    Raises:
        InputMismatchError: not evenly nested, values of another kind than the dtype, or out of its range.
        InvalidRequestError: JSON has no numbers of that dtype.
    """
    if dtype.kind == "c":
        raise InvalidRequestError(f"input '{port.name}': found JSON numbers, expected {dtype.name} as 'b64' or .npy")
    if not isinstance(value, LongList):
        return _converted(value, True, port, dtype)
    try:
        return value.read(dtype, partial(_converted, port=port, dtype=dtype))
    except ValueError as exc:
        raise _not_a_tensor([], port, exc) from None


def _converted(value: object, is_first: bool, port: engine.Port, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Convert JSON values, or an array of float64 or int64; is_first: whether they begin the tensor."""
    try:
        if is_text(dtype):
            return from_lists(value, port)
        if dtype.kind == "b":
            return _bools(value, port)
        if dtype.kind in "iu":
            return _in_range(value, dtype) if isinstance(value, np.ndarray) else _integers(value, port, dtype)
        if is_first and type(_first(value)) is bool:
            raise _wrong_kind(port, bool)
        return _floats(value, port, dtype)
    except (ValueError, TypeError) as exc:
        raise _not_a_tensor(value, port, exc) from None
    except (OverflowError, FloatingPointError):
        raise InputMismatchError(
            f"input '{port.name}': found a value that is out of range, expected {dtype.name}", input=port.name
        ) from None


def _floats(value: object, port: engine.Port, dtype: np.dtype[Any]) -> NDArray[Any]:
    wide = np.asarray(value, _WIDE)
    few = few_values(wide)
    if few is not None and all_finite(few) and max(map(abs, few), default=0.0) < _largest(dtype):
        return wide.astype(dtype)
    if np.isnan(wide).any() and type(None) in _leaf_types(value):  # numpy reads null as NaN
        raise _wrong_kind(port, type(None))
    with np.errstate(over="raise"):
        return wide.astype(dtype)


@lru_cache(maxsize=32)
def _largest(dtype: np.dtype[Any]) -> float:
    """Return the largest finite value of a dtype, 0 for other kinds than floats."""
    return float(np.finfo(dtype).max) if dtype.kind == "f" else 0.0


def _integers(value: object, port: engine.Port, dtype: np.dtype[Any]) -> NDArray[Any]:
    kinds = _leaf_types(value)
    for kind in kinds - {int, float}:
        raise _wrong_kind(port, kind)
    if float not in kinds:
        return np.array(value, dtype)
    wide = np.array(value, _WIDE)
    if not np.array_equal(wide, np.rint(wide)):
        raise _wrong_kind(port, float)
    if np.abs(wide).max(initial=0.0) >= _EXACT:
        return _large_integers(value, dtype)
    return _in_range(wide, dtype)


def _in_range(wide: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Convert whole numbers.

    Raises:
        OverflowError: a value is out of the range of dtype.
    """
    limits = np.iinfo(dtype)
    if wide.size and (wide.min() < limits.min or wide.max() > limits.max):
        raise OverflowError
    return wide.astype(dtype)


def _large_integers(value: object, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Convert each value on its own: integers from 2**53 on lose digits in float64.

    Raises:
        OverflowError: a value is out of the range of dtype.
    """
    each: NDArray[Any] = np.array(value, np.object_)
    # The parser reads an integer beyond 64 bits as a float, so -(2**63 + 1) arrives as the float -2**63.
    if any(type(number) is float and number == _LEAST_INT64 for number in each.flat):
        raise OverflowError
    return np.array([int(number) for number in each.flat], dtype).reshape(each.shape)


def _bools(value: object, port: engine.Port) -> NDArray[Any]:
    for kind in _leaf_types(value) - {bool}:
        raise InputMismatchError(
            f"input '{port.name}': found {_TYPE_NAMES.get(kind, 'a number')}, expected true or false", input=port.name
        )
    return np.array(value, np.bool_)


def _leaf_types(value: object) -> set[type]:
    """Return the types of the values in nested lists."""
    kinds: set[type] = set()
    if isinstance(value, list):
        _collect(value, kinds)
        return kinds
    return {type(value)}


def _collect(values: list[Any], kinds: set[type]) -> None:
    kinds.update(map(type, values))
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
        f"input '{port.name}': found {_TYPE_NAMES.get(kind, kind.__name__)}, expected numbers for {describe(port)}",
        input=port.name,
        found=_TYPE_NAMES.get(kind, kind.__name__),
        expected=describe(port),
    )


def _not_a_tensor(value: object, port: engine.Port, exc: Exception) -> InputMismatchError:
    for kind in _leaf_types(value) - {int, float, bool}:
        return _wrong_kind(port, kind)
    found = "lists of unequal length" if isinstance(exc, ValueError) else json_type_name(value)
    return InputMismatchError(
        f"input '{port.name}': found {found}, expected evenly nested lists of numbers for {describe(port)}",
        input=port.name,
        found=found,
        expected=describe(port),
    )


def json_type_name(value: object) -> str:
    """Return the name of a value's type in JSON's terms."""
    return _TYPE_NAMES.get(type(value), "a list" if isinstance(value, list) else "a number")
