"""Header scan of BMP."""

from __future__ import annotations

from typing import Final

from app.images.headers.header import I32LE, U16LE, U32LE, Header, number

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
