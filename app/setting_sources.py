"""Sources of settings other than flags: environment variables and a TOML file.

Unknown names are errors, so that a typing mistake cannot pass unnoticed. As app/settings.py this module must not
import numpy.
"""

from __future__ import annotations

import logging
import re
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from app.messages import did_you_mean, printable

log = logging.getLogger(__name__)

PREFIX: Final = "PNNX_SERVE_"
# Names the settings file; not a setting itself.
CONFIG: Final = "config"
# Settings with several values: comma-separated in a variable, a list in a file.
LISTS: Final = ("allowed_hosts", "cors_origins", "load_model", "passes_off", "plugins", "required")
# Settings of earlier versions, which are ignored with a warning.
REMOVED: Final = frozenset({"max_headers", "max_pipelined", "min_bytes_per_s", "retry_after_s"})
# Never in flags or the settings file, which other users of the machine may read; never echoed.
SECRETS: Final = ("keys", "tls_key_password")

# Kubernetes sets variables for each service of a namespace; for a service called pnnx-serve these are
# PNNX_SERVE_SERVICE_HOST, PNNX_SERVE_PORT_80_TCP, ... and PNNX_SERVE_PORT=tcp://10.0.0.1:80.
_SERVICE_LINK: Final = re.compile(r"PNNX_SERVE_(SERVICE_(HOST|PORT)\w*|PORT_\d+_\w+)")


class SettingsError(Exception):
    """A variable, argument or file is invalid."""


def variable(name: str) -> str:
    """Return the environment variable of a setting."""
    return PREFIX + name.upper()


def read_variables(environ: Mapping[str, str], known: Collection[str]) -> dict[str, Any]:
    """Return the settings in the environment, and ``config`` if it names a settings file.

    Raises:
        SettingsError: a variable with the prefix names no setting.
    """
    values: dict[str, Any] = {}
    for key, text in environ.items():
        if not key.startswith(PREFIX) or _SERVICE_LINK.fullmatch(key) or text.startswith("tcp://"):
            continue
        name = key.removeprefix(PREFIX).lower()
        if _is_removed(name):
            continue
        if name not in known and name != CONFIG:
            hint = did_you_mean(key, map(variable, [*known, CONFIG]))
            raise SettingsError(f"unknown setting {key}{hint}")
        if text:
            values[name] = _split(name, text)
    return values


def read_file(path: Path, known: Collection[str]) -> dict[str, Any]:
    """Return the settings of a TOML file: ``port = 8000``, ``cors_origins = ["http://page"]``.

    Raises:
        SettingsError: the file cannot be read, is not TOML, or has an unknown setting or a secret.
    """
    try:
        with path.open("rb") as file:
            table = tomllib.load(file)
    except OSError as exc:
        raise SettingsError(f"config '{path}': {exc.strerror}") from None
    except ValueError as exc:  # not TOML, or not UTF-8
        raise SettingsError(f"config '{path}': {printable(str(exc))}") from None
    table = {name: value for name, value in table.items() if not _is_removed(name)}
    problems = [problem for name in table if (problem := _problem(name, known))]
    if problems:
        raise SettingsError(f"config '{path}': {'; '.join(problems)}")
    return {name: _split(name, value) for name, value in table.items()}


def _problem(name: str, known: Collection[str]) -> str | None:
    if name in SECRETS:
        return f"{name} is a secret, expected it in {variable(name)}"
    return None if name in known else f"unknown setting '{printable(name)}'{did_you_mean(name, known)}"


def _is_removed(name: str) -> bool:
    if name in REMOVED:
        log.warning("the setting %s does nothing any more, and the next version refuses it", name)
    return name in REMOVED


def _split(name: str, value: Any) -> Any:
    """Split comma-separated text of a setting with several values."""
    if name in LISTS and isinstance(value, str):
        return tuple(filter(None, map(str.strip, value.split(","))))
    return value
