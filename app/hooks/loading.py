"""Import of ``hooks.py``."""

from __future__ import annotations

import hashlib
import inspect
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from app.errors import ConfigError
from app.hooks import HOOKS
from app.hooks.hooks import Hooks
from app.messages import quoted, safe_text
from app.text_files import read_text

log = logging.getLogger(__name__)

_MAX_BYTES: Final = 1 << 20
_FUNCTIONS: Final = ("preprocess", "postprocess")


def open_hooks(path: Path | None, model: str, plugins: tuple[str, ...]) -> Hooks | None:
    """Return the hooks of a model, or None if it has none.

    Args:
        path: where ``hooks.py`` would be; None if the version has no folder.
        model: name of the model.
        plugins: the setting, which must contain ``hooks.py``: the file may run any code.

    Raises:
        ConfigError: hooks are not allowed, or the file cannot be imported, or has none of the functions.
    """
    if path is None or not os.path.lexists(path):
        return None
    if HOOKS not in plugins:
        raise ConfigError(
            f"{HOOKS}: found beside the model, expected '{HOOKS}' in the setting plugins, which allows it to run code"
        )
    try:
        source = read_text(path, _MAX_BYTES)
    except ConfigError as exc:
        raise ConfigError(f"{HOOKS}: {exc}") from None
    module = _run(source, path, model)
    found = [_function(module, name) for name in _FUNCTIONS]
    if found == [None, None]:
        raise ConfigError(f"{HOOKS}: found neither, expected one of the functions {quoted(_FUNCTIONS)}")
    return Hooks(model, *found)


def _run(source: str, path: Path, model: str) -> ModuleType:
    """Return the module of a file, which other versions of it do not replace."""
    module = ModuleType(f"pnnx_serve_hooks_{hashlib.sha256(source.encode()).hexdigest()[:16]}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # where dataclasses and pickle look for it
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)  # the setting allows it
    except BaseException as exc:  # the file may raise anything, also SystemExit
        log.exception("model '%s': %s cannot be imported", model, HOOKS)
        line = f", line {exc.lineno}" if isinstance(exc, SyntaxError) else ""
        raise ConfigError(f"{HOOKS}{line}: {type(exc).__name__}: {safe_text(str(exc), 200)}") from exc
    return module


def _function(module: ModuleType, name: str) -> Callable[[Any], Any] | None:
    """Return a function of one argument, or None if the module does not have it.

    Raises:
        ConfigError: it is not a function, or takes other arguments.
    """
    found = getattr(module, name, None)
    if found is None:
        return None
    try:
        inspect.signature(found).bind(None)
    except (TypeError, ValueError):
        raise ConfigError(f"{HOOKS}: {name}: expected a function of one argument") from None
    if inspect.iscoroutinefunction(found):
        raise ConfigError(f"{HOOKS}: {name}: found an async function, expected a plain one, which runs in a thread")
    function: Callable[[Any], Any] = found
    return function
