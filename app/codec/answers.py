"""Encoding of results.

JSON has no NaN and infinities: in answers they are the strings "NaN", "Infinity" and "-Infinity", which requests may
use as well; .npz represents them directly. Complex numbers are pairs [re, im] in JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import orjson
from numpy.typing import NDArray

from app.arrays import as_strings, dtype_name, is_text
from app.codec.numpy_files import portable
from app.memory.reservation import charge, check

_DEPTH: Final = 32
_LONGEST: Final = 10_000
_OPTIONS: Final = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
# Bytes of a value as text, in a buffer that grows by doubling; and of a Python number in a list.
_TEXT: Final = 24
_NUMBER: Final = 48
# Values written without a pause: writing holds the interpreter lock, 1 ms for so many and at most a MiB.
CHUNK_VALUES: Final = 1 << 15
# Pieces of an answer are joined up to so many bytes.
_PIECE: Final = 1 << 19


class ChunkedArray:
    """Large flat array in an answer, written in chunks so that other threads run in between."""

    def __init__(self, flat: NDArray[Any]) -> None:
        self._flat = flat
        self._has_non_finite = not _is_finite(flat)
        if self._has_non_finite:
            charge(_NUMBER * flat.size)

    def pieces(self) -> Iterator[bytes]:
        """Yield the JSON of the array in pieces.

        Raises:
            DeadlineExceededError: the request was cancelled.
        """
        for start in range(0, self._flat.size, CHUNK_VALUES):
            check()
            chunk = self._flat[start : start + CHUNK_VALUES]
            text = orjson.dumps(_values(chunk, self._has_non_finite), option=_OPTIONS)
            yield b"," if start else b"["
            yield text[1:-1]
        yield b"]"


def dump_pieces(value: object) -> list[bytes]:
    """Return JSON as ``dump_json`` does, in pieces if there are ``ChunkedArray`` in its objects and lists of those.

    Raises:
        DeadlineExceededError: the request was cancelled.
    """
    pieces: list[bytes] = []
    pending: list[bytes] = []
    size = 0
    for text in _pieces(value):
        pending.append(text)
        size += len(text)
        if size >= _PIECE:
            pieces.append(b"".join(pending))
            pending, size = [], 0
    return [*pieces, b"".join(pending)] if pending else pieces


def _pieces(value: object) -> Iterator[bytes]:
    if isinstance(value, ChunkedArray):
        yield from value.pieces()
    elif isinstance(value, dict) and _has_chunked(value):
        for number, (key, item) in enumerate(value.items()):
            yield (b"," if number else b"{") + dump_json({key: None})[1 : -len(b"null}")]
            yield from _pieces(item)
        yield b"}"
    elif isinstance(value, list) and _has_chunked(value):
        for number, item in enumerate(value):
            yield b"," if number else b"["
            yield from _pieces(item)
        yield b"]"
    else:
        yield dump_json(value)


def _has_chunked(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_has_chunked, value.values()))
    if isinstance(value, list):
        return bool(value) and isinstance(value[0], dict) and any(map(_has_chunked, value))
    return isinstance(value, ChunkedArray)


def dump_json(value: object) -> bytes:
    """Return JSON; arrays inside must be flat and of a dtype that orjson supports (see json_tensor).

    Values that orjson cannot write become text: integers beyond 64 bits, lone surrogates, other objects. They occur in
    errors that quote a client or a file, and must not cause another error.
    """
    try:
        return orjson.dumps(value, option=_OPTIONS)
    except orjson.JSONEncodeError:
        return orjson.dumps(_encodable(value), option=_OPTIONS)


def _encodable(value: object, depth: int = 0) -> object:
    """Return the value with text in place of what orjson cannot write."""
    if value is None or isinstance(value, (bool, float, np.ndarray, np.generic)):
        return value
    if isinstance(value, int) and -(2**63) <= value < 2**64:
        return value
    if isinstance(value, Mapping) and depth < _DEPTH:
        return {str(_encodable(key, _DEPTH)): _encodable(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)) and depth < _DEPTH:
        return [_encodable(item, depth + 1) for item in value]
    return as_text(value)


def as_text(value: object, limit: int = _LONGEST) -> str:
    """Return ``str(value)``, cut; a value that cannot be converted is represented by its type."""
    if not isinstance(value, str):
        try:
            value = str(value)
        except Exception:  # Python does not write numbers of thousands of digits; other objects may raise anything
            value = f"{value:#x}" if isinstance(value, int) else type(value).__name__
    return value[:limit].encode(errors="replace").decode()


def json_tensor(array: NDArray[Any]) -> dict[str, Any]:
    """Return ``{"shape", "dtype", "data"}`` with flat data in row-major order, as ``ChunkedArray`` if large."""
    if is_text(array.dtype):
        return {"shape": list(array.shape), "dtype": dtype_name(array.dtype), "data": as_strings(array)}
    flat = portable(array).ravel()
    data = ChunkedArray(flat) if flat.size > CHUNK_VALUES else _small(flat)
    return {"shape": list(array.shape), "dtype": dtype_name(array.dtype), "data": data}


def json_tensors(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Return tensors by name."""
    charge(_TEXT * sum(array.size for array in arrays.values()))
    return {name: json_tensor(array) for name, array in arrays.items()}


def _small(flat: NDArray[Any]) -> NDArray[Any] | list[Any]:
    return _values(flat, not _is_finite(flat))


def _is_finite(flat: NDArray[Any]) -> bool:
    return flat.dtype.kind not in "fc" or bool(np.isfinite(flat).all())


def _values(flat: NDArray[Any], has_non_finite: bool) -> NDArray[Any] | list[Any]:
    """Return values that orjson can write, NaN and infinities as strings if has_non_finite.

    has_non_finite: whether any value of the whole array is not finite; then the others are written as float64.
    """
    if flat.dtype.kind == "c":
        values = _values(flat.view(flat.real.dtype), has_non_finite)
        numbers: list[Any] = values if isinstance(values, list) else values.tolist()
        return [list(pair) for pair in zip(numbers[::2], numbers[1::2], strict=True)]
    if not has_non_finite:
        return flat
    texts: list[Any] = flat.tolist()
    for index in np.flatnonzero(~np.isfinite(flat)):
        texts[index] = _non_finite_text(texts[index])
    return texts


def _non_finite_text(value: float) -> str:
    if value != value:
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
