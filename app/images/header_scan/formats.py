"""PNG, BMP, GIF and WebP: chunks of the still picture, of the first frame, or the whole file."""

from __future__ import annotations

import struct
from typing import Final

from app.images.header_scan.tiff import orientation_of
from app.images.header_scan.types import I32LE, U16LE, U32BE, U32LE, Header, HeaderError, TooManyPartsError, number

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


_OLD_HEADER: Final = 12
# Run-length compressions; the longest code for a pixel, a step to it and a run of one.
_RUNS: Final = frozenset({1, 2})
_MOST_CODE: Final = 6


def scan_bmp(data: memoryview) -> Header:
    """Read the size; a negative height means top to bottom."""
    if number(U32LE, data, 14) == _OLD_HEADER:
        size = number(U16LE, data, 18), number(U16LE, data, 20)
    else:
        size = abs(number(I32LE, data, 18)), abs(number(I32LE, data, 22))
    # Pillow collects compressed rows as bytes first.
    return Header(format="BMP", size=size, parts=(_needed(data, size),), extra_bytes=size[0] * size[1])


def _needed(data: memoryview, size: tuple[int, int]) -> memoryview:
    """Return the file without data behind the picture: codes that move nowhere could go on forever."""
    if number(U32LE, data, 14) == _OLD_HEADER or number(U32LE, data, 30) not in _RUNS:
        return data
    end = number(U32LE, data, 10) + _MOST_CODE * (size[0] + 1) * (size[1] + 1)
    return data[:end]


_HEADER: Final = 13
_IMAGE, _EXTENSION, _CONTROL = 0x2C, 0x21, 0xF9
_MAX_BLOCKS: Final = 65_536


def scan_gif(data: memoryview) -> Header:
    """Read the extensions before the first frame; ignore everything after it."""
    if len(data) < _HEADER:
        raise HeaderError("the file ends early")
    screen = number(U16LE, data, 6), number(U16LE, data, 8)
    at = _HEADER + _table(data[10])
    parts = [data[:at]]
    count = 0
    while True:
        kind = data[at] if at < len(data) else None
        if kind == _IMAGE:
            left, top, width, height = (number(U16LE, data, at + 1 + 2 * index) for index in range(4))
            size = max(screen[0], left + width), max(screen[1], top + height)
            return Header(format="GIF", size=size, parts=(*parts, data[at:]))
        if kind != _EXTENSION:
            raise HeaderError("it has no frame")
        start, at = at, at + 2
        while (length := data[at] if at < len(data) else 0) > 0:
            at += 1 + length
            count += 1
            if count > _MAX_BLOCKS:
                raise TooManyPartsError("has too many blocks before its first frame", _MAX_BLOCKS)
        at += 1
        if bytes(data[start + 1 : start + 2]) == bytes([_CONTROL]) and at - start <= 16:
            parts = [parts[0], data[start:at]]


def _table(flags: int) -> int:
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


_MAX_WEBP_CHUNKS: Final = 4096
_FIRST: Final = 12
# Two canvases of the decoder and the frame, four bytes a pixel each.
_CANVASES: Final = 12


def scan_webp(data: memoryview) -> Header:
    """Read the chunks."""
    size = _size(data)
    at, orientation = _FIRST, 1
    for _ in range(_MAX_WEBP_CHUNKS):
        if at + 8 > len(data):
            extra = _CANVASES * size[0] * size[1] + 2 * len(data)
            return Header(format="WEBP", size=size, parts=(data,), orientation=orientation, extra_bytes=extra)
        length = number(U32LE, data, at + 4)
        if bytes(data[at : at + 4]) == b"EXIF":
            orientation = orientation_of(data[at + 8 : at + 8 + length])
        at += 8 + length + (length & 1)
    raise TooManyPartsError("has too many chunks", _MAX_WEBP_CHUNKS)


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
