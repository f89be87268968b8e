"""Pictures as PNG files, and those as text for JSON."""

from __future__ import annotations

import base64
import io
from typing import Any, Final

from PIL import Image

# Photographs hardly become smaller above this, but take several times as long.
_COMPRESSION: Final = 1


def encode_png(image: Image.Image, **options: Any) -> bytes:
    """The file; options are those of Pillow."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=_COMPRESSION, **options)
    return buffer.getvalue()


def to_text(png: bytes) -> str:
    """base64, as a request may have it under "image"."""
    return base64.b64encode(png).decode()


def from_text(text: str) -> bytes:
    """The file back from its text."""
    return base64.b64decode(text)


def decode_png(png: bytes) -> Image.Image:
    """The picture of a file of ours."""
    return Image.open(io.BytesIO(png), formats=("PNG",))
