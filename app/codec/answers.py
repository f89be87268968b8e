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

_OPTIONS: Final = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS


def dump_json(value: object) -> bytes:
    """JSON text; arrays inside must be flat and of a dtype orjson knows (see json_tensor)."""
    return orjson.dumps(value, option=_OPTIONS)


def json_tensor(array: NDArray[Any]) -> dict[str, Any]:
    """``{"shape", "dtype", "data"}``, the data flat in row-major order."""
    return {"shape": list(array.shape), "dtype": array.dtype.name, "data": _values(portable(array).ravel())}


def json_tensors(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Tensors by name."""
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
    spelt: list[Any] = flat.tolist()
    for index in np.flatnonzero(~is_finite):
        spelt[index] = _spell(spelt[index])
    return spelt


def _spell(value: float) -> str:
    if value != value:
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
