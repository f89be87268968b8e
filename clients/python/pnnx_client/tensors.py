"""Arrays <-> the bytes of the Open Inference Protocol: little-endian values in row-major order."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

try:
    import ml_dtypes
except ImportError:  # numpy has no bfloat16 of its own
    _BFLOAT16: np.dtype[Any] | None = None
else:
    _BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

Array = NDArray[Any]
BYTES: Final = "BYTES"
_DATATYPES: Final = {
    "bool": "BOOL",
    "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64",
    "int8": "INT8", "int16": "INT16", "int32": "INT32", "int64": "INT64",
    "float16": "FP16", "bfloat16": "BF16", "float32": "FP32", "float64": "FP64",
}  # fmt: skip
_NAMES: Final = {datatype: name for name, datatype in _DATATYPES.items()}
DATATYPES: Final = (*_NAMES, BYTES)
_LENGTH: Final = 4  # bytes of an element's length


def array_of(value: ArrayLike) -> Array:
    """An array in the order and byte order that are sent. Numbers without a dtype get the one PyTorch would give them.

    Raises:
        TypeError: no numbers.
    """
    array = np.asarray(value)
    if array.dtype == np.float64 and not hasattr(value, "dtype"):
        array = array.astype(np.float32)
    if array.dtype.kind not in "buifc" and array.dtype.name not in _DATATYPES:
        raise TypeError(f"inputs: found {array.dtype}, expected numbers")
    return np.asarray(array, array.dtype.newbyteorder("<"), order="C")


def datatype_of(array: Array) -> str:
    """The protocol's word for a dtype.

    Raises:
        TypeError: it has none.
    """
    datatype = _DATATYPES.get(array.dtype.name)
    if datatype is None:
        raise TypeError(f"inputs: found {array.dtype}, expected one of {', '.join(_DATATYPES)}")
    return datatype


def to_bytes(array: Array) -> memoryview:
    """The bytes of an array, where they lie."""
    return array.reshape(-1).view(np.uint8).data


def to_npy(array: Array) -> bytes:
    """An .npy file."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def elements_to_bytes(elements: Sequence[bytes]) -> bytes:
    """A tensor of BYTES: each behind its length."""
    return b"".join(len(element).to_bytes(_LENGTH, "little") + element for element in elements)


def from_bytes(data: memoryview, datatype: str, shape: Sequence[int]) -> Array:
    """A read-only array over bytes; a copy where they lie so that numpy would stumble.

    bfloat16 becomes float32 where ml_dtypes is not installed.
    """
    if datatype == BYTES:
        return _elements(data, shape)
    dtype = _dtype(_NAMES[datatype])
    if dtype is None:
        bits = np.frombuffer(data, "<u2").astype(np.uint32)
        return _settled((bits << 16).view(np.float32), shape)
    return _settled(np.frombuffer(data, dtype.newbyteorder("<")), shape)


def from_numbers(data: Sequence[Any], name: str, shape: Sequence[int]) -> Array:
    """An array of what JSON holds: numbers, texts for those JSON has none for, pairs for complex ones."""
    dtype = _dtype(name) or np.dtype(np.float32)
    if dtype.kind == "c":
        return _settled(np.array(data, f"f{dtype.itemsize // 2}").view(dtype), shape)
    return _settled(np.array(data, dtype), shape)


def _dtype(name: str) -> np.dtype[Any] | None:
    """None for bfloat16 where there is none."""
    return _BFLOAT16 if name == "bfloat16" else np.dtype(name)


def _settled(array: Array, shape: Sequence[int]) -> Array:
    array = array.reshape(shape)
    array = array if array.flags.aligned else array.copy()
    array.flags.writeable = False
    return array


def _elements(data: memoryview, shape: Sequence[int]) -> Array:
    found, rest = [], data
    while rest:
        size = int.from_bytes(rest[:_LENGTH], "little")
        rest = rest[_LENGTH:]
        found.append(bytes(rest[:size]))
        rest = rest[size:]
    array = np.empty(len(found), object)
    array[:] = found
    return _settled(array, shape)
