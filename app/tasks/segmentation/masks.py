"""The class of every pixel as a PNG: the palette index is the class, what is background or no class is transparent.

No class has the index 255. Where there are more than 255 classes the picture has colours instead of a palette.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from PIL import Image

from app.images.palette import Color
from app.images.png import encode_png
from app.tasks.segmentation.class_maps import NOTHING, ClassMap

_MOST_WITH_PALETTE: Final = 255


def encode_mask(class_map: ClassMap, colors: Sequence[Color], background: int = NOTHING) -> bytes:
    """The PNG of a map with a colour for each class."""
    if len(colors) > _MOST_WITH_PALETTE:
        palette = _palette(colors, background, len(colors) + 1)
        return encode_png(Image.fromarray(palette[class_map]))  # NOTHING is the last one
    palette = _palette(colors, background, _MOST_WITH_PALETTE + 1)
    image = Image.fromarray(class_map.astype(np.uint8))  # NOTHING becomes 255
    image.putpalette(palette[:, :3].tobytes(), "RGB")
    return encode_png(image, transparency=palette[:, 3].tobytes())


def _palette(colors: Sequence[Color], background: int, size: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    palette = np.zeros((size, 4), np.uint8)
    palette[: len(colors)] = [(*color, 255) for color in colors]
    if 0 <= background < len(colors):
        palette[background] = 0
    return palette
