"""PNG encoding, and base64 for JSON."""

from __future__ import annotations

import base64
import io
from typing import Any, Final

from PIL import Image

# Higher levels take several times as long and hardly shrink photographs.
_COMPRESSION: Final = 1


def encode_png(image: Image.Image, **options: Any) -> bytes:
    """Return the PNG file; options are Pillow's."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=_COMPRESSION, **options)
    return buffer.getvalue()


def to_text(png: bytes) -> str:
    """Return base64 text, as accepted under "image" in a request."""
    return base64.b64encode(png).decode()


def from_text(text: str) -> bytes:
    """Return the PNG file from its base64 text."""
    return base64.b64decode(text)


def decode_png(png: bytes) -> Image.Image:
    """Return the picture of a PNG file made by ``encode_png``."""
    return Image.open(io.BytesIO(png), formats=("PNG",))
