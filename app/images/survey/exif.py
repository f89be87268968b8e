"""The orientation of an EXIF block: of all it holds the one number that changes what is seen."""

from __future__ import annotations

from typing import Final

from app.images.survey.types import U16BE, U16LE, U32BE, U32LE, SurveyError, number

_ORIENTATION: Final = 0x0112
_SHORT: Final = 3
_ENTRY: Final = 12
_MAX_ENTRIES: Final = 1024
_PREFIX: Final = b"Exif\0\0"


def orientation_of(block: memoryview) -> int:
    """1 to 8; 1 where the block says nothing, or nothing that can be read."""
    if bytes(block[: len(_PREFIX)]) == _PREFIX:
        block = block[len(_PREFIX) :]
    start = bytes(block[:4])
    if start not in (b"II*\0", b"MM\0*"):
        return 1
    u16, u32 = (U16LE, U32LE) if start[:1] == b"I" else (U16BE, U32BE)
    try:
        at = number(u32, block, 4)
        for index in range(min(number(u16, block, at), _MAX_ENTRIES)):
            entry = at + 2 + index * _ENTRY
            if number(u16, block, entry) == _ORIENTATION and number(u16, block, entry + 2) == _SHORT:
                found = number(u16, block, entry + 8)
                return found if 1 <= found <= 8 else 1
    except SurveyError:
        pass
    return 1
