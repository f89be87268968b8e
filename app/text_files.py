"""Small text files of the store, which may be anything: of any size, of any kind, under any name; files replaced."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeAlias

import engine
from app.errors import ConfigError

FileIdentity: TypeAlias = tuple[int, ...]


def identity_of(path: Path) -> FileIdentity | None:
    """Return what tells one file from another in its place; None where there is none."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    # The last one cannot be set: a tool that restores a file's time does not hide that it has written to it.
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def read_text(path: Path, max_bytes: int, *, encoding: str = "utf-8") -> str:
    """The text of a regular file, whose lines end in line feeds however they end in the file.

    Raises:
        ConfigError: it is missing, unreadable, no regular file, too long or not in this encoding; names no file.
    """
    try:
        text = engine.read_file(path, max_bytes).decode(encoding)
    except engine.ModelFormatError as exc:
        exc.where = ""  # the caller knows which file it is
        raise ConfigError(str(exc)) from None
    except UnicodeDecodeError:
        raise ConfigError("not UTF-8") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")
