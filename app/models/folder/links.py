"""Links among a model's files: they may lead to other files of the model or of its store, and nowhere else.

A model's folder may come from anybody, and what is read for a model is shown to clients: a link to a file of the
machine would hand that out. Kubernetes mounts each file of a ConfigMap as a link to ``..data/`` beside it, which stays
below the folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from app.errors import ConfigError
from app.messages import safe_text


def check_links(path: Path, roots: Iterable[Path]) -> Path:
    """Return the path if, links resolved, it lies below one of the folders, links resolved.

    Raises:
        ConfigError: it does not.
    """
    try:
        real = Path(os.path.realpath(path))
    except ValueError:  # a zero byte; reading the file reports it
        return path
    if not any(real.is_relative_to(os.path.realpath(root)) for root in roots):
        raise ConfigError(
            f"'{safe_text(path.name, 100)}' is a link, or lies behind one, that leads out of the model's folder,"
            " expected a file below it"
        )
    return path
