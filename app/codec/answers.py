"""Results -> the bytes of an answer.

JSON has no NaN and no infinities: in answers they are the strings "NaN", "Infinity" and "-Infinity", which the JSON of
a request may use as well; .npz carries them as they are. Complex numbers are pairs [re, im] in JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import orjson
from numpy.typing import NDArray

from app.arrays import all_finite, as_strings, dtype_name, few_values, is_text
from app.codec.numpy_files import portable
from app.memory.reservation import charge, check

_DEPTH: Final = 32
_LONGEST: Final = 10_000
_OPTIONS: Final = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
# Bytes of a value as text, in a buffer that grows by doubling; and of one as a Python number in a list.
_TEXT: Final = 24
_NUMBER: Final = 48
# Values that are written at once: everybody waits for the writer, a millisecond for so many, and a MiB at most.
SLAB: Final = 1 << 15
# Pieces of an answer are put together up to so many bytes.
_PIECE: Final = 1 << 19


class Slabs:
    """A large flat array within an answer: written a slab at a time, so that other threads run in between."""

    def __init__(self, flat: NDArray[Any]) -> None:
        self._flat = flat
        self._is_spelt = not _is_finite(flat)
        if self._is_spelt:
            charge(_NUMBER * flat.size)

    def pieces(self) -> Iterator[bytes]:
        """The text that orjson makes of the whole.

        Raises:
            DeadlineExceededError: nobody waits for it any more.
        """
        for start in range(0, self._flat.size, SLAB):
            check()
            text = orjson.dumps(_values(self._flat[start : start + SLAB], self._is_spelt), option=_OPTIONS)
            yield b"," if start else b"["
            yield text[1:-1]
        yield b"]"


def dump_pieces(value: object) -> list[bytes]:
    """JSON text as ``dump_json`` makes it, in pieces where there are ``Slabs`` in its objects.

    Raises:
        DeadlineExceededError: nobody waits for it any more.
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
    if isinstance(value, Slabs):
        yield from value.pieces()
    elif isinstance(value, dict) and _has_slabs(value):
        for number, (key, item) in enumerate(value.items()):
            yield (b"," if number else b"{") + dump_json({key: None})[1 : -len(b"null}")]
            yield from _pieces(item)
        yield b"}"
    else:
        yield dump_json(value)


def _has_slabs(value: object) -> bool:
    return isinstance(value, Slabs) or (isinstance(value, dict) and any(map(_has_slabs, value.values())))


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
    """``{"shape", "dtype", "data"}``, the data flat in row-major order; ``Slabs`` where it is large."""
    if is_text(array.dtype):
        return {"shape": list(array.shape), "dtype": dtype_name(array.dtype), "data": as_strings(array)}
    flat = portable(array).ravel()
    data = Slabs(flat) if flat.size > SLAB else _small(flat)
    return {"shape": list(array.shape), "dtype": dtype_name(array.dtype), "data": data}


def json_tensors(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Tensors by name."""
    charge(_TEXT * sum(array.size for array in arrays.values()))
    return {name: json_tensor(array) for name, array in arrays.items()}


def _small(flat: NDArray[Any]) -> NDArray[Any] | list[Any]:
    return _values(flat, not _is_finite(flat))


def _is_finite(flat: NDArray[Any]) -> bool:
    few = few_values(flat)
    if few is not None:
        return all_finite(few)
    return flat.dtype.kind not in "fc" or bool(np.isfinite(flat).all())


def _values(flat: NDArray[Any], is_spelt: bool) -> NDArray[Any] | list[Any]:
    """What orjson writes; is_spelt: there are values, here or elsewhere in the array, that JSON has no numbers for.

    Numbers beside such values are written as the float64 they are.
    """
    if flat.dtype.kind == "c":
        values = _values(flat.view(flat.real.dtype), is_spelt)
        numbers: list[Any] = values if isinstance(values, list) else values.tolist()
        return [list(pair) for pair in zip(numbers[::2], numbers[1::2], strict=True)]
    if not is_spelt:
        return flat
    spelt: list[Any] = flat.tolist()
    for index in np.flatnonzero(~np.isfinite(flat)):
        spelt[index] = _spell(spelt[index])
    return spelt


def _spell(value: float) -> str:
    if value != value:
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
