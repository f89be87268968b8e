"""Plugins: Python modules with operators of the user's own, imported before any model is loaded.

A plugin registers layers with ``engine.register`` on import, and may run any code: only modules named in the settings
are loaded, never files from a model's folder. This module does not import numpy, but plugins do, so the number of
threads must be set before.
"""

from __future__ import annotations

import importlib
import os
import zlib
from collections.abc import Iterable
from pathlib import Path

from app.hooks import HOOKS
from app.python_files import import_file
from app.settings import SettingsError


def load_plugins(plugins: Iterable[str]) -> None:
    """Import plugins, each once per process.

    Args:
        plugins: names of modules, or paths of files (ending in ``.py`` or containing a slash); ``hooks.py`` is neither.

    Raises:
        SettingsError: a plugin is missing or fails; the message names it.
    """
    for plugin in plugins:
        if plugin == HOOKS:  # allows files of this name beside models, which are imported with them
            continue
        try:
            if plugin.endswith(".py") or os.sep in plugin:
                _import_file(Path(plugin))
            else:
                importlib.import_module(plugin)
        except Exception as exc:  # a plugin may fail in any way
            raise SettingsError(f"plugin '{plugin}' cannot be loaded: {_reason(exc)}") from exc


def _import_file(path: Path) -> None:
    """Import a file under a unique module name."""
    path = path.resolve()
    import_file(path, f"pnnx_serve_plugin_{zlib.crc32(os.fsencode(path)):08x}")


def _reason(exc: Exception) -> str:
    if isinstance(exc, OSError) and exc.strerror:
        return exc.strerror
    return f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__
