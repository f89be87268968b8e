"""Header scan of PNG: chunks."""

from __future__ import annotations

import struct
from typing import Final

from app.images.headers.exif import orientation_of
from app.images.headers.header import U32BE, Header, HeaderError, TooManyPartsError, number

_MAX_CHUNKS: Final = 65_536
_KEPT: Final = frozenset({b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"})
_HEAD: Final = struct.Struct(">L4s")  # length and type
_FRAME: Final = 12  # length, type and checksum


def scan_png(data: memoryview) -> Header:
    """Read the chunks; adjacent kept chunks form one part."""
    if bytes(data[12:16]) != b"IHDR":
        raise HeaderError("it does not begin with its header")
    size = number(U32BE, data, 16), number(U32BE, data, 20)
    spans, orientation = [(0, 8)], 1
    at, count = 8, 0
    while at + _FRAME <= len(data):
        count += 1
        if count > _MAX_CHUNKS:
            raise TooManyPartsError("has too many chunks", _MAX_CHUNKS)
        length, kind = _HEAD.unpack_from(data, at)
        end = at + _FRAME + length
        if kind in _KEPT:
            _add(spans, at, min(end, len(data)))
        elif kind == b"eXIf":
            orientation = orientation_of(data[at + 8 : end - 4])
        at = end
        if kind == b"IEND":
            break
    if at > len(data) or at + _FRAME > len(data):
        _add(spans, min(at, len(data)), len(data))  # truncated, which the decoder reports
    return Header(
        format="PNG", size=size, parts=tuple(data[start:end] for start, end in spans), orientation=orientation
    )


def _add(spans: list[tuple[int, int]], start: int, end: int) -> None:
    if spans[-1][1] == start:
        spans[-1] = spans[-1][0], end
    elif end > start:
        spans.append((start, end))
