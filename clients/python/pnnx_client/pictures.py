"""What counts as a picture, and the bytes it is sent as."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeAlias, TypeGuard, runtime_checkable


@runtime_checkable
class Saves(Protocol):
    """An image of Pillow's, or what can be saved as one."""

    def save(self, fp: BinaryIO, format: str) -> Any:
        """Write it."""


Picture: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview | Saves"


def is_picture(value: object) -> TypeGuard[Picture]:
    """Whether something is a picture: where one lies, its encoded bytes, or an object that can save itself."""
    return isinstance(value, (str, os.PathLike, bytes, bytearray, memoryview, Saves))


def pictures_of(value: object) -> list[Picture] | None:
    """One picture, or those of a list; None where it is something else."""
    if is_picture(value):
        return [value]
    if isinstance(value, (list, tuple)) and value and all(map(is_picture, value)):
        return list(value)
    return None


def encoded(picture: Picture) -> bytes:
    """A picture's bytes, as they lie; those of an object in memory as PNG, which loses nothing."""
    if isinstance(picture, (str, os.PathLike)):
        return Path(picture).read_bytes()
    if isinstance(picture, (bytes, bytearray, memoryview)):
        return bytes(picture)
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()
