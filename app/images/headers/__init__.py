"""Header scan of pictures: format, size, orientation and the parts needed for decoding, before decoding.

A decoder receives only these parts: comments, profiles, thumbnails, text and further frames, which cost time or memory
and show nothing, are left out. Each format is scanned once, in time linear in the file size; files with more parts than
a picture needs are refused.

Decoders therefore never follow a tag to profiles, notes, nested directories, or the same bytes a thousand times.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from app.images.headers.bmp import scan_bmp
from app.images.headers.gif import scan_gif
from app.images.headers.header import Header, HeaderError, TooManyPartsError
from app.images.headers.jpeg import scan_jpeg
from app.images.headers.png import scan_png
from app.images.headers.tiff import scan_tiff
from app.images.headers.webp import scan_webp

__all__ = ["Header", "HeaderError", "TooManyPartsError", "format_of", "scan_header"]

_BEGINNINGS: Final[tuple[tuple[bytes, int, str, Callable[[memoryview], Header]], ...]] = (
    (b"\xff\xd8\xff", 0, "JPEG", scan_jpeg),
    (b"\x89PNG\r\n\x1a\n", 0, "PNG", scan_png),
    (b"WEBP", 8, "WEBP", scan_webp),
    (b"GIF8", 0, "GIF", scan_gif),
    (b"II*\0", 0, "TIFF", scan_tiff),
    (b"MM\0*", 0, "TIFF", scan_tiff),
    (b"BM", 0, "BMP", scan_bmp),
)


def format_of(start: bytes) -> str | None:
    """Return the format of a file from its first twelve bytes, or None."""
    found = _find(start)
    return None if found is None else found[0]


def scan_header(data: memoryview) -> Header | None:
    """Return the header of a file, or None for an unknown format.

    Raises:
        HeaderError: the file is damaged.
        TooManyPartsError: it has too many parts.
    """
    found = _find(bytes(data[:12]))
    return None if found is None else found[1](data)


def _find(start: bytes) -> tuple[str, Callable[[memoryview], Header]] | None:
    if start[8:12] != b"WEBP" and start.startswith(b"RIFF"):
        return None  # audio or video
    for beginning, at, name, read in _BEGINNINGS:
        if start[at : at + len(beginning)] == beginning and (name != "WEBP" or start.startswith(b"RIFF")):
            return name, read
    return None
