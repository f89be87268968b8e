"""Pillow's resize for pictures of any proportions.

It resizes rows first, then columns: of a picture 10 wide and 60,000 high that is to become 640 by 640 the half-done
one has 640 times 60,000 pixels. Where that is far more than the other way round, columns come first; values may then
differ by one, for what is half-done is rounded.
"""

from __future__ import annotations

from typing import Final

from PIL import Image

# Pixels half-done that nobody needs to save.
_PLENTY: Final = 1 << 24
_FAR_MORE: Final = 4


def resized(
    image: Image.Image, size: tuple[int, int], way: Image.Resampling, box: tuple[float, float, float, float]
) -> Image.Image:
    """The part of a picture in a box, brought to a size."""
    if not _columns_first(image.size, size):
        return image.resize(size, way, box=box)
    x0, y0, x1, y1 = box
    flat = image.resize((image.width, size[1]), way, box=(0, y0, image.width, y1))
    return flat.resize(size, way, box=(x0, 0, x1, size[1]))


def half_resized(picture: tuple[int, int], size: tuple[int, int]) -> int:
    """Pixels of the half-done picture."""
    return picture[0] * size[1] if _columns_first(picture, size) else picture[1] * size[0]


def _columns_first(picture: tuple[int, int], size: tuple[int, int]) -> bool:
    rows_first = picture[1] * size[0]
    return rows_first > max(_PLENTY, _FAR_MORE * picture[0] * size[1])
