"""Conversion between arrays and the bytes of the Open Inference Protocol: little-endian, row-major."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

try:
    import ml_dtypes
except ImportError:  # numpy has no bfloat16
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
_LENGTH: Final = 4  # bytes of the length before an element


def array_of(value: ArrayLike) -> Array:
    """Return a little-endian, row-major array. Numbers without a dtype get PyTorch's default dtype.

    Raises:
        TypeError: the values are not numbers.
    """
    array = np.asarray(value)
    if array.dtype == np.float64 and not hasattr(value, "dtype"):
        array = array.astype(np.float32)
    if array.dtype.kind not in "buifc" and array.dtype.name not in _DATATYPES:
        raise TypeError(f"inputs: found {array.dtype}, expected numbers")
    return np.asarray(array, array.dtype.newbyteorder("<"), order="C")


def datatype_of(array: Array) -> str:
    """Return the protocol's datatype of an array.

    Raises:
        TypeError: there is none.
    """
    datatype = _DATATYPES.get(array.dtype.name)
    if datatype is None:
        raise TypeError(f"inputs: found {array.dtype}, expected one of {', '.join(_DATATYPES)}")
    return datatype


def to_bytes(array: Array) -> memoryview:
    """Return a view of the bytes of an array."""
    return array.reshape(-1).view(np.uint8).data


def to_npy(array: Array) -> bytes:
    """Return the bytes of an .npy file."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def elements_to_bytes(elements: Sequence[bytes]) -> bytes:
    """Return a BYTES tensor: each element after its length."""
    return b"".join(len(element).to_bytes(_LENGTH, "little") + element for element in elements)


def from_bytes(data: memoryview, datatype: str, shape: Sequence[int]) -> Array:
    """Return a read-only view of the bytes as an array; a copy if they are misaligned.

    Without ml_dtypes, bfloat16 becomes float32.
    """
    if datatype == BYTES:
        return _elements(data, shape)
    dtype = _dtype(_NAMES[datatype])
    if dtype is None:
        bits = np.frombuffer(data, "<u2").astype(np.uint32)
        return _reshaped((bits << 16).view(np.float32), shape)
    return _reshaped(np.frombuffer(data, dtype.newbyteorder("<")), shape)


def from_numbers(data: Sequence[Any], name: str, shape: Sequence[int]) -> Array:
    """Return the array of JSON values: numbers, strings for non-finite ones, pairs for complex ones."""
    dtype = _dtype(name) or np.dtype(np.float32)
    if dtype.kind == "c":
        return _reshaped(np.array(data, f"f{dtype.itemsize // 2}").view(dtype), shape)
    return _reshaped(np.array(data, dtype), shape)


def _dtype(name: str) -> np.dtype[Any] | None:
    """Return a dtype; None for bfloat16 without ml_dtypes."""
    return _BFLOAT16 if name == "bfloat16" else np.dtype(name)


def _reshaped(array: Array, shape: Sequence[int]) -> Array:
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
    return _reshaped(array, shape)
