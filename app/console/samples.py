"""Samples of a model: the files in the folder ``examples`` beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import engine
from app.errors import ConfigError, NotFoundError
from app.messages import cut
from app.models.folder.repository import ModelFiles
from app.models.folder.toml import check_links

TYPES: Final[Mapping[str, str]] = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".webp": "image/webp",
    ".npy": "application/x-npy",
    ".wav": "audio/wav",
    ".flac": "audio/flac",
    ".ogg": "audio/ogg",
    ".mp3": "audio/mpeg",
}
_MOST: Final = 48
_MAX_BYTES: Final = 4 << 20


def list_samples(files: ModelFiles) -> list[dict[str, object]]:
    """Return name, type and size of each sample; none for a pair without a folder of its own."""
    inside = [(path, size) for path, size in _found(files) if _is_inside(path, files)]
    return [{"name": path.name, "type": TYPES[path.suffix.lower()], "bytes": size} for path, size in inside]


def read_sample(files: ModelFiles, name: str) -> tuple[bytes, str]:
    """Return the contents and type of a sample.

    Raises:
        NotFoundError: there is no such sample.
    """
    for path, _ in _found(files):
        if path.name == name:
            try:
                check_links(path, files.roots)
                return bytes(engine.read_file(path, _MAX_BYTES)), TYPES[path.suffix.lower()]
            except ConfigError as exc:
                raise NotFoundError(f"model '{files.name}': {exc}") from None
            except engine.EngineError:  # removed meanwhile, or not a file any more
                break
    raise NotFoundError(f"model '{files.name}' has no sample '{cut(name)}'")


def _is_inside(path: Path, files: ModelFiles) -> bool:
    """Return whether a file is inside the model's folder; the size of an outside file must not leak."""
    try:
        check_links(path, files.roots)
    except ConfigError:
        return False
    return True


def _found(files: ModelFiles) -> list[tuple[Path, int]]:
    if files.name != files.folder.name:
        return []
    try:
        paths = sorted(
            path for path in (files.folder / "examples").iterdir() if path.suffix.lower() in TYPES and path.is_file()
        )[:_MOST]
        sizes = [(path, path.stat().st_size) for path in paths]
    except OSError:  # no such folder, or removed meanwhile
        return []
    return [(path, size) for path, size in sizes if size <= _MAX_BYTES]
