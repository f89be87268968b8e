"""Small text files of a store, read safely: any size and kind, possibly replaced while the server runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeAlias

import engine
from app.errors import ConfigError

FileIdentity: TypeAlias = tuple[int, ...]


def identity_of(path: Path) -> FileIdentity | None:
    """Return values that change when the file is replaced or written, or None if there is no file."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    # ctime cannot be set: it changes even if a tool restores the modification time.
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def read_text(path: Path, max_bytes: int, *, encoding: str = "utf-8") -> str:
    """Return the text of a regular file, with line feeds as line ends.

    Raises:
        ConfigError: missing, unreadable, not regular, too long or in another encoding; does not name the file.
    """
    try:
        text = engine.read_file(path, max_bytes).decode(encoding)
    except engine.ModelFormatError as exc:
        exc.where = ""  # the caller knows which file it is
        raise ConfigError(str(exc)) from None
    except UnicodeDecodeError:
        raise ConfigError("not UTF-8") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")
