"""A protocol buffer without its large tensors: the rest is parsed, the tensors stay in the file.

The parser copies every field it meets. So the message is first walked down to the tensors, and each large run of
elements is replaced by a short token; the elements are then taken from the file itself. Every length is checked
against the enclosing message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from engine.errors import ModelFormatError

Chunk: TypeAlias = bytes | memoryview

MAX_SKELETON_BYTES: Final = 1 << 26
"""Most bytes without large tensors; when parsed they take many times as much."""

MAX_FIELDS: Final = 1 << 20
"""Most nodes, tensors and values of one graph."""

_MAX_DEPTH: Final = 64
# Smaller messages are copied: walking them costs more.
_WALKED_BYTES: Final = 4096
_LARGE_BYTES: Final = 2048

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WIDTHS: Final = {_FIXED64: 8, _FIXED32: 4}

_TENSOR: Final = "tensor"
# Message -> number of a field -> message in that field, for all that may contain tensors (onnx.proto).
_MESSAGES: Final[Mapping[str, Mapping[int, str]]] = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: _TENSOR, 15: "sparse"},
    "function": {7: "node"},
    "node": {5: "attribute"},
    "attribute": {5: _TENSOR, 6: "graph", 10: _TENSOR, 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: _TENSOR, 2: _TENSOR},
    _TENSOR: {},
}
_RAW_DATA: Final = 9
# float_data and double_data have the layout of raw data.
_AS_RAW: Final = (4, 10, _RAW_DATA)
_ELEMENTS: Final = (4, 5, 6, 7, 9, 10, 11)


@dataclass(slots=True)
class Skeleton:
    """A message without its large tensors.

    Args:
        token: random prefix of the number that replaces a run of elements; it cannot occur in the file.
        content: the message.
        runs: offset and length in the file of every run.
    """

    token: bytes
    content: bytes = b""
    runs: list[tuple[int, int]] = field(default_factory=list)

    def run_of(self, raw: bytes) -> tuple[int, int] | None:
        """Return the location of a tensor's elements; None if they are in the message."""
        if len(raw) != len(self.token) + 4 or not raw.startswith(self.token):
            return None
        return self.runs[int.from_bytes(raw[len(self.token) :], "big")]


def strip(data: memoryview, token: bytes) -> Skeleton:
    """Return a model without its large tensors.

    Raises:
        ModelFormatError: the message is cut off or damaged, or too large without them.
    """
    skeleton = Skeleton(token)
    chunks: list[Chunk] = []
    size = _Walker(data, skeleton).walk("model", 0, len(data), chunks, 0)
    if size > MAX_SKELETON_BYTES:
        raise ModelFormatError(
            "the model is too large without its tensors",
            found=f"{size:,} bytes",
            expected=f"at most {MAX_SKELETON_BYTES:,}",
        )
    skeleton.content = b"".join(chunks)
    return skeleton


class _Walker:
    def __init__(self, data: memoryview, skeleton: Skeleton) -> None:
        self._data = data
        self._skeleton = skeleton
        self._fields = 0

    def walk(self, message: str, start: int, end: int, chunks: list[Chunk], depth: int) -> int:
        """Append the rest of a message; return its length."""
        if depth > _MAX_DEPTH:
            raise ModelFormatError("graphs are nested too deep", found=depth, expected=f"at most {_MAX_DEPTH}")
        if message == _TENSOR:
            return self._tensor(start, end, chunks)
        held, size, place, kept = _MESSAGES[message], 0, start, start
        while place < end:
            number, begin, stop = self._field(place, end)
            if number in held and stop - begin >= _WALKED_BYTES:
                size += self._keep(kept, place, chunks)
                inner: list[Chunk] = []
                length = self.walk(held[number], begin, stop, inner, depth + 1)
                head = _head(number, length)
                chunks += (head, *inner)
                size += len(head) + length
                kept = stop
            place = stop
        return size + self._keep(kept, end, chunks)

    def _tensor(self, start: int, end: int, chunks: list[Chunk]) -> int:
        """Append a tensor without its elements if they are one large run, else unchanged."""
        place, runs = start, []
        while place < end:
            number, begin, stop = self._field(place, end)
            if number in _ELEMENTS:
                runs.append((number, place, begin, stop))
            place = stop
        if len(runs) != 1:
            return self._keep(start, end, chunks)
        number, place, begin, stop = runs[0]
        if number not in _AS_RAW or stop - begin < _LARGE_BYTES or self._data[place] & 7 != _BYTES:
            return self._keep(start, end, chunks)
        token = self._skeleton.token + len(self._skeleton.runs).to_bytes(4, "big")
        self._skeleton.runs.append((begin, stop - begin))
        head = _head(_RAW_DATA, len(token)) + token
        chunks.append(head)
        return self._keep(start, place, chunks) + len(head) + self._keep(stop, end, chunks)

    def _keep(self, start: int, end: int, chunks: list[Chunk]) -> int:
        if end > start:
            chunks.append(self._data[start:end])
        return end - start

    def _field(self, place: int, end: int) -> tuple[int, int, int]:
        """Return the number of the field at an offset, and the begin and end of its content."""
        self._fields += 1
        if self._fields > MAX_FIELDS:
            raise ModelFormatError(
                "too many nodes and values", found=f"more than {MAX_FIELDS:,}", expected=f"at most {MAX_FIELDS:,}"
            )
        key, begin = self._varint(place, end)
        kind = key & 7
        if kind == _BYTES:
            length, begin = self._varint(begin, end)
            stop = begin + length
        elif kind == _VARINT:
            stop = self._varint(begin, end)[1]
        elif kind in _WIDTHS:
            stop = begin + _WIDTHS[kind]
        else:
            raise self._damaged(place)
        if stop > end or not key >> 3:
            raise self._damaged(place)
        return key >> 3, begin, stop

    def _varint(self, place: int, end: int) -> tuple[int, int]:
        value = 0
        for shift in range(0, 70, 7):
            if place >= end:
                raise self._damaged(place)
            byte = self._data[place]
            place += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, place
        raise self._damaged(place)

    def _damaged(self, place: int) -> ModelFormatError:
        return ModelFormatError("not an ONNX model, or a damaged one", where=f"byte {place:,}")


def _head(number: int, length: int) -> bytes:
    """Return the tag and length of a field of bytes."""
    return _as_varint(number << 3 | _BYTES) + _as_varint(length)


def _as_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
