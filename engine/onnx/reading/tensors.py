"""Tensors of a file as arrays: views of the file where their elements are stored in numpy's layout."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from engine.errors import EngineError, WeightsError, quoted
from engine.layers.onnx.operands.dtypes import DTYPES
from engine.limits import MAX_RANK, check_size
from engine.onnx.reading.wire import Skeleton
from engine.pnnx.files import take_file
from engine.tensor import Array, dtype_name

STRING: Final = 8
_BITS: Final = {21: 4, 22: 4, 23: 4, 25: 2, 26: 2}
# The field that holds elements which are not in raw_data, and the dtype of its items.
_FIELDS: Final[Mapping[int, tuple[str, Any]]] = {
    1: ("float_data", np.float32), 14: ("float_data", np.float32), 11: ("double_data", np.float64),
    15: ("double_data", np.float64), 7: ("int64_data", np.int64), 12: ("uint64_data", np.uint64),
    13: ("uint64_data", np.uint64),
}  # fmt: skip
_SHARED: Final = "int32_data"
_EXTERNAL: Final = 1
# Most elements of a sparse tensor, in all and for each stored value, so that a small file needs little memory.
_DENSE: Final = 1 << 20
_ZEROS_EACH: Final = 1000


@dataclass(slots=True)
class Weights:
    """Source of the elements of a file's tensors.

    Args:
        data: the file.
        skeleton: the parts of it that were not parsed.
        folder: the only folder whose files may hold elements.
    """

    data: Array
    skeleton: Skeleton
    folder: str
    _others: dict[str, Array] = field(default_factory=dict)

    def array(self, proto: Any, name: str = "") -> Array:
        """Return the elements of a TensorProto, read-only.

        Raises:
            WeightsError: their number contradicts the dimensions, their type is unknown, or they are outside the
                folder.
        """
        try:
            return self._array(proto)
        except EngineError as error:
            raise error.at(f"tensor {quoted(name or proto.name)}") from None

    def dense(self, proto: Any) -> Array:
        """Return a SparseTensorProto with its zeros, read-only.

        Raises:
            WeightsError: an index out of range, different numbers of values and indices, or far more zeros than values.
        """
        try:
            return _dense(self.array(proto.values), self.array(proto.indices, "indices"), tuple(proto.dims))
        except EngineError as error:
            raise error.at(f"sparse tensor {quoted(proto.values.name)}") from None

    def _array(self, proto: Any) -> Array:
        number, shape = proto.data_type, tuple(proto.dims)
        if number not in DTYPES:
            raise WeightsError("unknown data type", found=number, expected="one of onnx.TensorProto.DataType")
        if len(shape) > MAX_RANK or min(shape, default=0) < 0:
            raise WeightsError("not a shape", found=list(shape)[:8], expected=f"up to {MAX_RANK} sizes of 0 and more")
        check_size(shape, DTYPES[number], "the tensor")
        count = math.prod(shape)
        array = self._strings(proto, count) if number == STRING else self._elements(proto, number, count)
        array = array.reshape(shape)
        array.flags.writeable = False
        return array

    def _strings(self, proto: Any, count: int) -> Array:
        _check_count(len(proto.string_data), count, "strings")
        array = np.empty(count, np.object_)
        array[:] = [each.decode("utf-8", "replace") for each in proto.string_data]
        return array

    def _elements(self, proto: Any, number: int, count: int) -> Array:
        if proto.data_location == _EXTERNAL:
            return _typed(self._external(proto), number, count)
        if proto.HasField("raw_data"):
            raw = proto.raw_data
            run = self.skeleton.run_of(raw)
            held = np.frombuffer(raw, np.uint8) if run is None else self.data[run[0] : run[0] + run[1]]
            return _typed(held, number, count)
        name, kind = _FIELDS.get(number, (_SHARED, np.int32))
        values = np.array(getattr(proto, name), kind)
        return _converted(values, number, count)

    def _external(self, proto: Any) -> Array:
        entries = {entry.key: entry.value for entry in proto.external_data}
        held = self._file(entries.get("location", ""))
        offset, length = (_number(entries, key) for key in ("offset", "length"))
        begin = offset or 0
        end = held.size if length is None else begin + length
        if end > held.size:
            found = f"bytes {begin:,} to {end:,}"
            raise WeightsError("the tensor is not in its file", found=found, expected=f"within {held.size:,} bytes")
        return held[begin:end]

    def _file(self, location: str) -> Array:
        if location not in self._others:
            self._others[location] = take_file(self._path(location))
        return self._others[location]

    def _path(self, location: str) -> str:
        """Return the path of a file in the folder of the model.

        Raises:
            WeightsError: it would be outside the model's folder, possibly through a link.
        """
        expected = "a file in the folder of the model, or below it"
        parts = location.replace("\\", "/").split("/")
        if not location or os.path.isabs(location) or ".." in parts or "\0" in location:
            raise WeightsError("the tensor's file is outside", found=quoted(location), expected=expected)
        root = os.path.realpath(self.folder)
        path = os.path.realpath(os.path.join(root, location))
        if os.path.commonpath((root, path)) != root:
            raise WeightsError("the tensor's file is outside", found=quoted(location), expected=expected)
        return path


def _dense(values: Array, indices: Array, shape: tuple[int, ...]) -> Array:
    if len(shape) > MAX_RANK or min(shape, default=0) < 0:
        raise WeightsError("not a shape", found=list(shape)[:8], expected=f"up to {MAX_RANK} sizes of 0 and more")
    check_size(shape, values.dtype, "the tensor")
    size, most = math.prod(shape), max(_DENSE, _ZEROS_EACH * values.size)
    if size > most:
        raise WeightsError("a sparse tensor is too large", found=f"{size:,} elements", expected=f"at most {most:,}")
    fits = (
        values.ndim == 1 and indices.dtype == np.int64 and indices.shape in ((values.size,), (values.size, len(shape)))
    )
    if not fits:
        found = f"{list(values.shape)} values at {list(indices.shape)} {dtype_name(indices.dtype)}"
        raise WeightsError("values and indices do not fit", found=found, expected="an index for each value, int64")
    limits = np.array([size] if indices.ndim == 1 else shape, np.int64)
    rows = indices.reshape(values.size, -1)
    if ((rows < 0) | (rows >= limits)).any():
        raise WeightsError("an index is out of range", expected=f"indices within {list(shape)}")
    array = np.zeros(shape, values.dtype)
    array[np.unravel_index(indices, shape) if indices.ndim == 1 else tuple(rows.T)] = values
    array.flags.writeable = False
    return array


def _number(entries: Mapping[str, str], key: str) -> int | None:
    text = entries.get(key)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise WeightsError(f"{key} of the tensor is not a number", found=quoted(text), expected="0 or more")
    return int(text)


def _typed(held: Array, number: int, count: int) -> Array:
    """Return bytes as elements: a view, except for elements smaller than a byte."""
    if number in _BITS:
        _check_count(held.size, -(-count * _BITS[number] // 8), "bytes")
        return _unpacked(held, number, count)
    dtype = DTYPES[number]
    _check_count(held.size, count * dtype.itemsize, "bytes")
    if number == 9 and held.size and held.max() > 1:
        raise WeightsError("a bool is neither 0 nor 1", found=int(held.max()))
    return held.view(dtype)


def _unpacked(held: Array, number: int, count: int) -> Array:
    """Return elements smaller than a byte, the first in the lowest bits."""
    bits = _BITS[number]
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = ((held[:, None] >> shifts) & (2**bits - 1)).reshape(-1)[:count].astype(np.uint8)
    if number == 23:
        return np.asarray(codes.view(DTYPES[number]))
    if number in (22, 26):  # the highest bit is the sign
        sign = np.int8(1 << (bits - 1))
        return np.asarray((codes.astype(np.int8) ^ sign) - sign).astype(DTYPES[number])
    return np.asarray(codes.astype(DTYPES[number]))


def _converted(values: Array, number: int, count: int) -> Array:
    """Return items of one of the typed fields as elements."""
    dtype = DTYPES[number]
    if number in _BITS:
        return _typed(values.astype(np.uint8), number, count)
    if dtype.kind == "c":
        _check_count(values.size, 2 * count, "numbers")
        return values.view(dtype)
    _check_count(values.size, count, dtype_name(dtype))
    if dtype.kind in "fV" and values.dtype == np.int32:  # float16 and narrower: the bits of each
        return values.astype(np.dtype(f"u{dtype.itemsize}")).view(dtype)
    return values.astype(dtype)


def _check_count(found: int, expected: int, what: str) -> None:
    if found != expected:
        raise WeightsError(
            "the number of elements contradicts the dimensions", found=f"{found:,} {what}", expected=expected
        )
