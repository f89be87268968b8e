"""Header scan of WebP: chunks."""

from __future__ import annotations

from typing import Final

from app.images.headers.exif import orientation_of
from app.images.headers.header import U16LE, U32LE, Header, HeaderError, TooManyPartsError, number

_MAX_CHUNKS: Final = 4096
_FIRST: Final = 12
# Two canvases of the decoder and the frame, four bytes a pixel each.
_CANVASES: Final = 12


def scan_webp(data: memoryview) -> Header:
    """Read the chunks."""
    size = _size(data)
    at, orientation = _FIRST, 1
    for _ in range(_MAX_CHUNKS):
        if at + 8 > len(data):
            extra = _CANVASES * size[0] * size[1] + 2 * len(data)
            return Header(format="WEBP", size=size, parts=(data,), orientation=orientation, extra_bytes=extra)
        length = number(U32LE, data, at + 4)
        if bytes(data[at : at + 4]) == b"EXIF":
            orientation = orientation_of(data[at + 8 : at + 8 + length])
        at += 8 + length + (length & 1)
    raise TooManyPartsError("has too many chunks", _MAX_CHUNKS)


def _size(data: memoryview) -> tuple[int, int]:
    kind = bytes(data[_FIRST : _FIRST + 4])
    if kind == b"VP8 ":
        return number(U16LE, data, 26) & 0x3FFF, number(U16LE, data, 28) & 0x3FFF
    if kind == b"VP8L":
        bits = number(U32LE, data, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8X":
        return (number(U32LE, data, 23) >> 8) + 1, (number(U32LE, data, 26) >> 8) + 1
    raise HeaderError("its first chunk is not a picture")
