"""BMP: a header and pixels, nothing to leave out."""

from __future__ import annotations

from typing import Final

from app.images.survey.types import I32LE, U16LE, U32LE, Survey, number

_OLD_HEADER: Final = 12


def survey_bmp(data: memoryview) -> Survey:
    """The size; a negative height is that of a picture from top to bottom."""
    if number(U32LE, data, 14) == _OLD_HEADER:
        size = number(U16LE, data, 18), number(U16LE, data, 20)
    else:
        size = abs(number(I32LE, data, 18)), abs(number(I32LE, data, 22))
    # Compressed rows are collected as bytes first.
    return Survey(format="BMP", size=size, parts=(data,), extra_bytes=size[0] * size[1])
