"""Operators of the user's own: Python modules that the settings name, imported before any model is loaded.

A plugin registers its layers with ``engine.register`` while it is imported, and may do whatever a program may: only
what the user names is loaded, never anything that lies in a model's folder. Nothing here imports numpy; a plugin does,
so the number of threads must be settled before.
"""

from __future__ import annotations

import importlib
import os
import zlib
from collections.abc import Iterable
from pathlib import Path

from app.python_files import import_file
from app.settings import SettingsError


def load_plugins(plugins: Iterable[str]) -> None:
    """Import plugins, each once in the life of this process.

    Args:
        plugins: names of modules, or paths of files: what ends in ``.py`` or holds a slash.

    Raises:
        SettingsError: one that is missing or fails; names it, and why.
    """
    for plugin in plugins:
        try:
            if plugin.endswith(".py") or os.sep in plugin:
                _import_file(Path(plugin))
            else:
                importlib.import_module(plugin)
        except Exception as exc:  # a plugin may fail in any way
            raise SettingsError(f"plugin '{plugin}' cannot be loaded: {_reason(exc)}") from exc


def _import_file(path: Path) -> None:
    """Import a file under a name that only this file has, however it is spelt."""
    path = path.resolve()
    import_file(path, f"pnnx_serve_plugin_{zlib.crc32(os.fsencode(path)):08x}")


def _reason(exc: Exception) -> str:
    if isinstance(exc, OSError) and exc.strerror:
        return exc.strerror
    return f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__
