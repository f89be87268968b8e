"""Header of a picture as a scan finds it, and the errors of damaged files."""

from __future__ import annotations

import struct
from typing import NamedTuple

U16LE, U16BE, U32LE, U32BE, I32LE = (struct.Struct(text) for text in ("<H", ">H", "<L", ">L", "<l"))


class HeaderError(Exception):
    """Damaged file; the message says where."""


class TooManyPartsError(Exception):
    """File with too many parts."""

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(f"{what}, expected at most {limit}")
        self.limit = limit


class Header(NamedTuple):
    """Result of a header scan.

    Args:
        format: Pillow's name of the format.
        size: (width, height) as stored.
        parts: bytes needed for decoding, in order.
        orientation: EXIF orientation, 1 to 8.
        pauses: offsets in the joined parts at which a decoder checks for cancellation.
        extra_bytes: memory for decoding beyond the picture itself.
    """

    format: str
    size: tuple[int, int]
    parts: tuple[memoryview, ...]
    orientation: int = 1
    pauses: tuple[int, ...] = ()
    extra_bytes: int = 0


def number(layout: struct.Struct, data: memoryview, at: int) -> int:
    """Return a number of a file.

    Raises:
        HeaderError: the file ends before it.
    """
    if at < 0 or at + layout.size > len(data):
        raise HeaderError("the file ends early")
    value: int = layout.unpack_from(data, at)[0]
    return value
