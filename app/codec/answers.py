"""Results -> the bytes of an answer.

JSON has no NaN and no infinities: in answers they are the strings "NaN", "Infinity" and "-Infinity", which the JSON of
a request may use as well; .npz carries them as they are. Complex numbers are pairs [re, im] in JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import orjson
from numpy.typing import NDArray

from app.codec.numpy_files import portable
from app.memory import charge

_DEPTH: Final = 32
_LONGEST: Final = 10_000
_OPTIONS: Final = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
# Bytes of a value as text, in a buffer that grows by doubling; and of one as a Python number in a list.
_TEXT: Final = 24
_NUMBER: Final = 48


def dump_json(value: object) -> bytes:
    """JSON text; arrays inside must be flat and of a dtype orjson knows (see json_tensor).

    What JSON as orjson writes it cannot say becomes text: integers beyond 64 bits, halves of surrogate pairs, objects.
    A client's or a file's own words in an error are such, and must not turn the error into another.
    """
    try:
        return orjson.dumps(value, option=_OPTIONS)
    except orjson.JSONEncodeError:
        return orjson.dumps(_sayable(value), option=_OPTIONS)


def _sayable(value: object, depth: int = 0) -> object:
    """The same value with text in place of what orjson refuses."""
    if value is None or isinstance(value, (bool, float, np.ndarray, np.generic)):
        return value
    if isinstance(value, int) and -(2**63) <= value < 2**64:
        return value
    if isinstance(value, Mapping) and depth < _DEPTH:
        return {str(_sayable(key, _DEPTH)): _sayable(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)) and depth < _DEPTH:
        return [_sayable(item, depth + 1) for item in value]
    return as_text(value)


def as_text(value: object, limit: int = _LONGEST) -> str:
    """``str(value)``, cut, whatever the value is: what cannot be written is told by its kind."""
    if not isinstance(value, str):
        try:
            value = str(value)
        except Exception:  # Python refuses to write a number of thousands of digits; other objects do as they like
            value = f"{value:#x}" if isinstance(value, int) else type(value).__name__
    return value[:limit].encode(errors="replace").decode()


def json_tensor(array: NDArray[Any]) -> dict[str, Any]:
    """``{"shape", "dtype", "data"}``, the data flat in row-major order."""
    return {"shape": list(array.shape), "dtype": array.dtype.name, "data": _values(portable(array).ravel())}


def json_tensors(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Tensors by name."""
    charge(_TEXT * sum(array.size for array in arrays.values()))
    return {name: json_tensor(array) for name, array in arrays.items()}


def _values(flat: NDArray[Any]) -> NDArray[Any] | list[Any]:
    if flat.dtype.kind == "c":
        parts = flat.view(flat.real.dtype)
        values = _values(parts)
        numbers: list[Any] = values if isinstance(values, list) else values.tolist()
        return [list(pair) for pair in zip(numbers[::2], numbers[1::2], strict=True)]
    if flat.dtype.kind != "f":
        return flat
    is_finite = np.isfinite(flat)
    if is_finite.all():
        return flat
    charge(_NUMBER * flat.size)
    spelt: list[Any] = flat.tolist()
    for index in np.flatnonzero(~is_finite):
        spelt[index] = _spell(spelt[index])
    return spelt


def _spell(value: float) -> str:
    if value != value:
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
