"""Transparent colours of PNG pictures, where Pillow keeps them as the file has them.

Pillow scales grey of 1, 2 and 4 bits to 8 and cuts colours of 16 bits to 8, but not the transparent colour, which would
match no pixel, or the wrong ones (PNG specification, section 11.3.2.1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from PIL import Image

_DEPTH_AT: Final = 24
# Pillow's name for the byte order that makes it keep the second byte of each pair.
_LOW_BYTES: Final = "RGB;16L"


def depth_of(png: bytes | bytearray | memoryview) -> int:
    """Return the bits per sample from the header of a PNG."""
    return png[_DEPTH_AT] if len(png) > _DEPTH_AT else 8


def is_wide(image: Image.Image, depth: int) -> bool:
    """Return whether matching the key needs pixel bits that Pillow drops."""
    return depth == 16 and image.mode == "RGB" and "transparency" in image.info


def scale_key(image: Image.Image, depth: int) -> None:
    """Scale the transparent colour of at most 8 bits as Pillow scales the pixels."""
    key, most = image.info.get("transparency"), (1 << depth) - 1
    if depth > 8 or image.mode == "P":
        return
    if isinstance(key, int):
        image.info["transparency"] = (key & most) * 255 // most
    elif isinstance(key, tuple):
        image.info["transparency"] = tuple(each & most for each in key)


def apply_grey_key(grey: Image.Image) -> Image.Image:
    """Return 16-bit grey as 8 bits, with an alpha channel where a grey is transparent."""
    values = np.asarray(grey)
    # Pillow's own conversion would cut at 255 instead of scaling.
    scaled = Image.fromarray((np.clip(values, 0, 0xFFFF) >> 8).astype(np.uint8))
    key = grey.info.get("transparency")
    if not isinstance(key, int):
        return scaled
    return Image.merge("LA", (scaled, _alpha(values == key)))


def apply_wide_key(image: Image.Image, reopen: Callable[[], Image.Image]) -> Image.Image:
    """Return a 16-bit colour picture, decoded to its high bytes, with an alpha channel.

    Args:
        reopen: opens the same file once more, for the low bytes.
    """
    low: Any = reopen()
    low.tile = [(*where, _LOW_BYTES) for *where, _ in low.tile]
    key = np.array(image.info["transparency"], np.uint16)
    is_key = np.all(np.asarray(image) == key >> 8, axis=2) & np.all(np.asarray(low) == key & 0xFF, axis=2)
    keyed = image.copy()
    del keyed.info["transparency"]
    keyed.putalpha(_alpha(is_key))
    return keyed


def _alpha(is_clear: Any) -> Image.Image:
    return Image.fromarray(np.where(is_clear, 0, 255).astype(np.uint8))
