"""The pictures that lie beside a model to try it with: ``examples/`` of its folder."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import engine
from app.errors import NotFoundError
from app.models.folder.repository import ModelFiles
from app.wording import cut

TYPES: Final[Mapping[str, str]] = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".webp": "image/webp",
    ".npy": "application/x-npy",
}
_MOST: Final = 48
_MAX_BYTES: Final = 4 << 20


def list_samples(files: ModelFiles) -> list[dict[str, object]]:
    """Name, type and size of each, in order; none of a pair that has no folder of its own."""
    return [{"name": path.name, "type": TYPES[path.suffix.lower()], "bytes": size} for path, size in _found(files)]


def read_sample(files: ModelFiles, name: str) -> tuple[bytes, str]:
    """What is in one of those that are listed, and its type.

    Raises:
        NotFoundError: there is none of that name.
    """
    for path, _ in _found(files):
        if path.name == name:
            with suppress(engine.EngineError):  # it has gone, or is no file any more
                return bytes(engine.read_file(path, _MAX_BYTES)), TYPES[path.suffix.lower()]
    raise NotFoundError(f"model '{files.name}' has no sample '{cut(name)}'")


def _found(files: ModelFiles) -> list[tuple[Path, int]]:
    if files.name != files.folder.name:
        return []
    try:
        paths = sorted(
            path for path in (files.folder / "examples").iterdir() if path.suffix.lower() in TYPES and path.is_file()
        )[:_MOST]
        sizes = [(path, path.stat().st_size) for path in paths]
    except OSError:  # there is none, or it goes away meanwhile
        return []
    return [(path, size) for path, size in sizes if size <= _MAX_BYTES]
