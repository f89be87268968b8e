"""Header scan of GIF: everything up to the first frame."""

from __future__ import annotations

from typing import Final

from app.images.headers.header import U16LE, Header, HeaderError, TooManyPartsError, number

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
