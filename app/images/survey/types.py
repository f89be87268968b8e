"""What surveys are made of."""

from __future__ import annotations

import struct
from typing import NamedTuple


class SurveyError(Exception):
    """The file is damaged; the message says where."""


class TooManyPartsError(Exception):
    """The file has more parts than are looked at."""

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(f"{what}, expected at most {limit}")
        self.limit = limit


class Survey(NamedTuple):
    """What a file says of its picture.

    Args:
        format: as Pillow calls it.
        size: (width, height) as stored.
        parts: the bytes that decoding needs, in order.
        orientation: as EXIF numbers them, 1 to 8.
        pauses: places in the parts, joined, where a decoder should be asked whether it may stop.
        extra_bytes: what decoding takes beside the picture itself.
    """

    format: str
    size: tuple[int, int]
    parts: tuple[memoryview, ...]
    orientation: int = 1
    pauses: tuple[int, ...] = ()
    extra_bytes: int = 0


def number(layout: struct.Struct, data: memoryview, at: int) -> int:
    """A number of a file.

    Raises:
        SurveyError: the file ends before it.
    """
    if at < 0 or at + layout.size > len(data):
        raise SurveyError("the file ends early")
    value: int = layout.unpack_from(data, at)[0]
    return value


U16LE, U16BE, U32LE, U32BE, I32LE = (struct.Struct(text) for text in ("<H", ">H", "<L", ">L", "<l"))
