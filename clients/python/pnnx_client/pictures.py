"""Accepted forms of images, and the bytes that are sent."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeAlias, TypeGuard, runtime_checkable


@runtime_checkable
class Saves(Protocol):
    """A Pillow image, or another object with its ``save``."""

    def save(self, fp: BinaryIO, format: str) -> Any:
        """Write the image to a file."""


Picture: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview | Saves"


def is_picture(value: object) -> TypeGuard[Picture]:
    """Return whether a value is an image: a path, encoded bytes, or an object with ``save``."""
    return isinstance(value, (str, os.PathLike, bytes, bytearray, memoryview, Saves))


def pictures_of(value: object) -> list[Picture] | None:
    """Return the images of a value that is an image or a list of images; else None."""
    if is_picture(value):
        return [value]
    if isinstance(value, (list, tuple)) and value and all(map(is_picture, value)):
        return list(value)
    return None


def encoded(picture: Picture) -> bytes:
    """Return the encoded bytes of an image; an object in memory becomes a lossless PNG."""
    if isinstance(picture, (str, os.PathLike)):
        return Path(picture).read_bytes()
    if isinstance(picture, (bytes, bytearray, memoryview)):
        return bytes(picture)
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()
