"""Orientation in the EXIF data of a picture; nothing else of it is read."""

from __future__ import annotations

from typing import Final, Literal

from app.images.headers.header import U16BE, U16LE, U32BE, U32LE, HeaderError, number

ORIENTATION: Final = 274
"""Tag of the orientation."""
ENTRY_BYTES: Final = 12
# Integer types, also signed, and their bytes: writers use others than the SHORT of the standard.
INTEGERS: Final = {1: 1, 3: 2, 4: 4, 6: 1, 8: 2, 9: 4}
_INLINE: Final = 4
_MAX_ENTRIES: Final = 1024
_PREFIX: Final = b"Exif\0\0"


def orientation_of(block: memoryview) -> int:
    """Return the orientation 1 to 8; 1 if there is none or it cannot be read."""
    if bytes(block[: len(_PREFIX)]) == _PREFIX:
        block = block[len(_PREFIX) :]
    start = bytes(block[:4])
    if start not in (b"II*\0", b"MM\0*"):
        return 1
    u16, u32 = (U16LE, U32LE) if start[:1] == b"I" else (U16BE, U32BE)
    order: Literal["little", "big"] = "little" if start[:1] == b"I" else "big"
    try:
        at = number(u32, block, 4)
        for index in range(min(number(u16, block, at), _MAX_ENTRIES)):
            entry = at + 2 + index * ENTRY_BYTES
            size = INTEGERS.get(number(u16, block, entry + 2), _INLINE + 1)
            # Longer values are stored elsewhere.
            if number(u16, block, entry) == ORIENTATION and size * number(u32, block, entry + 4) <= _INLINE:
                found = int.from_bytes(block[entry + 8 : entry + 8 + size], order)
                return found if 1 <= found <= 8 else 1
    except HeaderError:
        pass
    return 1
