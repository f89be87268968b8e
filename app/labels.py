"""The names of a model's classes: a list in its config, or a text file beside it."""

from __future__ import annotations

from pathlib import Path

from app.config import FILE_NAME
from app.errors import ConfigError


def read_labels(folder: Path, labels: str | tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The labels of the classes, from the config itself or from the file beside it, one a line, without blanks around.

    A blank line is a class without a label and keeps its number; blank lines at the end are none.

    Raises:
        ConfigError: when the file is missing, unreadable, empty or not beside config.toml.
    """
    if not isinstance(labels, str):
        return labels
    path = folder / labels
    if path.name != labels:
        raise ConfigError(f"{FILE_NAME}: labels: found '{labels}', expected the name of a file beside {FILE_NAME}")
    try:
        # Not splitlines(), which also splits at form feeds and the like.
        lines = path.read_text(encoding="utf-8-sig").rstrip().split("\n")
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "not UTF-8"
        raise ConfigError(f"{FILE_NAME}: labels: cannot read '{labels}': {reason}") from None
    if lines == [""]:
        raise ConfigError(f"{FILE_NAME}: labels: '{labels}' is empty")
    return tuple(line.strip() for line in lines)
