"""Tensors out of a request's bytes, and into an answer's, without copies on the way.

protobuf copies what it reads, and again what it hands out: of a large tensor that would be twice its bytes for nothing.
What a message has beside its tensors is small; that is left to protobuf. https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from app.errors import RefusedError

_RAW_INPUTS: Final = 7
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MORE: Final = 0x80
_MAX_VARINT: Final = 10
# Tensors, parameters and outputs of a request; looking at each takes a microsecond.
_MAX_FIELDS: Final = 1 << 16

Piece = bytes | memoryview


def take_tensors(data: bytes) -> tuple[bytes, list[memoryview]]:
    """A ModelInferRequest without its raw_input_contents, and these as views of its bytes.

    Raises:
        RefusedError: it is none, or has too many parts.
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
    """A field of bytes, or a message in another, from what it consists of."""
    yield _as_varint(number << 3 | _BYTES) + _as_varint(sum(map(len, pieces)))
    yield from pieces


def _extent(data: bytes, at: int, kind: int) -> tuple[int, int]:
    """Where a value begins and ends."""
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
    return RefusedError(f"the message is no ModelInferRequest: {len(data)} bytes that cannot be read")
