"""The names of a model's classes: a list in its config, or a text file beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from app.errors import ConfigError
from app.models.folder.layout import CONFIG
from app.text_files import read_text
from app.wording import told

MAX_BYTES: Final = 8 * 2**20
MAX_LABELS: Final = 2**18
_MAX_NAME: Final = 100


def read_labels(folder: Path, labels: str | tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The labels of the classes, from the config itself or from the file beside it, one a line, without blanks around.

    A blank line is a class without a label and keeps its number; blank lines at the end are none.

    Raises:
        ConfigError: when the file is missing, unreadable, empty or not beside config.toml.
    """
    if not isinstance(labels, str):
        return labels
    name = told(labels, _MAX_NAME)
    path = folder / labels
    if path.name != labels:
        raise ConfigError(f"{CONFIG}: labels: found '{name}', expected the name of a file beside {CONFIG}")
    try:
        # Not splitlines(), which also splits at form feeds and the like.
        text = read_text(path, MAX_BYTES, encoding="utf-8-sig").rstrip()
    except ConfigError as exc:
        raise ConfigError(f"{CONFIG}: labels: cannot read '{name}': {exc}") from None
    if not text:
        raise ConfigError(f"{CONFIG}: labels: '{name}' is empty")
    if text.count("\n") >= MAX_LABELS:
        raise ConfigError(f"{CONFIG}: labels: found more than {MAX_LABELS:,} lines in '{name}'")
    return tuple(line.strip() for line in text.split("\n"))
