"""Check of symbolic links among a model's files: they must not leave the model or its store.

A model's folder may be untrusted, and file contents are shown to clients: a link to a file of the machine would leak
it.
Kubernetes mounts each file of a ConfigMap as a link to ``..data/`` beside it, which stays below the folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from app.errors import ConfigError
from app.messages import safe_text


def check_links(path: Path, roots: Iterable[Path]) -> Path:
    """Return the path if its target lies below one of the roots.

    Raises:
        ConfigError: it does not.
    """
    try:
        real = Path(os.path.realpath(path))
    except ValueError:  # a NUL byte; reading the file reports it
        return path
    if not any(real.is_relative_to(os.path.realpath(root)) for root in roots):
        raise ConfigError(
            f"'{safe_text(path.name, 100)}' is a link, or lies behind one, that leads out of the model's folder,"
            " expected a file below it"
        )
    return path
