"""Small text files of the store, which may be anything: of any size, of any kind, under any name."""

from __future__ import annotations

from pathlib import Path

import engine
from app.errors import ConfigError


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
