"""Tensors in the bytes of requests and answers, without copies.

protobuf copies bytes when it parses and again when it returns a field, which is too slow for large tensors. Everything
but the tensors is small and left to protobuf. https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from app.errors import RefusedError

_RAW_INPUTS: Final = 7
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MORE: Final = 0x80
_MAX_VARINT: Final = 10
# Limit of fields (tensors, parameters and outputs) in a request; each takes a microsecond.
_MAX_FIELDS: Final = 1 << 16

Piece = bytes | memoryview


def take_tensors(data: bytes) -> tuple[bytes, list[memoryview]]:
    """Return a ModelInferRequest without its raw_input_contents, and these as views.

    Raises:
        RefusedError: the bytes are not such a message, or it has too many fields.
    """
    view = memoryview(data)
    rest: list[memoryview] = []
    tensors: list[memoryview] = []
    kept = at = 0
    for _ in range(_MAX_FIELDS):
        if at == len(data):
            if not tensors:
                return data, tensors
            return b"".join([*rest, view[kept:]]), tensors
        start = at
        key, at = _varint(data, at)
        at, end = _extent(data, at, key & 7)
        if key == _RAW_INPUTS << 3 | _BYTES:
            rest.append(view[kept:start])
            tensors.append(view[at:end])
            kept = end
        at = end
    raise RefusedError(f"the message has too many fields: expected at most {_MAX_FIELDS}")


def field(number: int, pieces: Sequence[Piece]) -> Iterable[Piece]:
    """Yield the pieces of a field of bytes or of an embedded message."""
    yield _as_varint(number << 3 | _BYTES) + _as_varint(sum(map(len, pieces)))
    yield from pieces


def _extent(data: bytes, at: int, kind: int) -> tuple[int, int]:
    """Return where a value begins and ends."""
    if kind == _BYTES:
        length, at = _varint(data, at)
        end = at + length
    elif kind == _VARINT:
        end = _varint(data, at)[1]
    elif kind in (_FIXED64, _FIXED32):
        end = at + (8 if kind == _FIXED64 else 4)
    else:
        raise _unreadable(data)
    if end > len(data):
        raise _unreadable(data)
    return at, end


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    for position in range(at, min(at + _MAX_VARINT, len(data))):
        byte = data[position]
        value |= (byte & ~_MORE) << shift
        if byte < _MORE:
            return value, position + 1
        shift += 7
    raise _unreadable(data)


def _as_varint(value: int) -> bytes:
    found = bytearray()
    while value >= _MORE:
        found.append(value & ~_MORE & 0xFF | _MORE)
        value >>= 7
    found.append(value)
    return bytes(found)


def _unreadable(data: bytes) -> RefusedError:
    return RefusedError(f"found {len(data)} bytes that cannot be parsed, expected a ModelInferRequest")
