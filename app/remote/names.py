"""Rules for file names of a remote store."""

from __future__ import annotations

from typing import Final

from app.errors import ConfigError
from app.messages import safe_text

MAX_FILES: Final = 20_000
_MAX_DEPTH: Final = 8
_MAX_PART: Final = 200
_MAX_PATH: Final = 1000


class SourceError(ConfigError):
    """Remote store that cannot be read or is invalid. The message never holds a credential."""


def check_name(path: str) -> str:
    """Return the path if it is valid: relative, with ``/``, without ``..``.

    Raises:
        SourceError: it is not.
    """
    parts = path.split("/")
    is_long = len(path.encode("utf-8", "surrogateescape")) > _MAX_PATH or len(parts) > _MAX_DEPTH
    if is_long or "\\" in path or not path.isprintable() or not all(map(_is_part, parts)):
        raise SourceError(f"the file name '{safe_text(path, 100)}' is not allowed in a store")
    return path


def check_all(paths: list[str]) -> None:
    """Raise unless the paths can be files of one folder.

    Raises:
        SourceError: there are too many, a duplicate, or one that is also a folder of another.
    """
    if len(paths) > MAX_FILES:
        raise SourceError(f"found {len(paths):,} files, expected at most {MAX_FILES:,}")
    seen: set[str] = set()
    for path in paths:
        if check_name(path) in seen:
            raise SourceError(f"the file '{safe_text(path, 100)}' occurs twice")
        seen.add(path)
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder:
            if folder in seen:
                raise SourceError(f"'{safe_text(folder, 100)}' is a file, and the folder of others")
            folder = folder.rpartition("/")[0]


def _is_part(part: str) -> bool:
    return part not in ("", ".", "..") and len(part.encode("utf-8", "surrogateescape")) <= _MAX_PART
