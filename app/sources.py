"""Where settings come from besides flags: variables of the environment, and a file.

A variable or a key that names no setting is refused, so that a slip of the pen cannot pass as a default. Nothing here
imports numpy, as in app/settings.py.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from app.messages import did_you_mean, printable

PREFIX: Final = "PNNX_SERVE_"
# Names the file of settings, and is none.
CONFIG: Final = "config"
# Settings with several values: separated by commas in a variable, a list in a file.
LISTS: Final = ("allowed_hosts", "cors_origins", "load_model", "passes_off", "plugins", "required")
# Never flags or in a file of settings, which everybody on the machine can read; never echoed.
SECRETS: Final = ("keys", "tls_key_password")

# Kubernetes gives every container variables about each service of its namespace: for a service called pnnx-serve
# these are PNNX_SERVE_SERVICE_HOST, PNNX_SERVE_PORT_80_TCP, ... and PNNX_SERVE_PORT=tcp://10.0.0.1:80.
_SERVICE_LINK: Final = re.compile(r"PNNX_SERVE_(SERVICE_(HOST|PORT)\w*|PORT_\d+_\w+)")


class SettingsError(Exception):
    """A variable, argument or file is nothing the server can work with."""


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.upper()


def read_variables(environ: Mapping[str, str], known: Collection[str]) -> dict[str, Any]:
    """Settings of the environment, and ``config`` where it names a file of them.

    Raises:
        SettingsError: a variable of the family names no setting.
    """
    values: dict[str, Any] = {}
    for key, text in environ.items():
        if not key.startswith(PREFIX) or _SERVICE_LINK.fullmatch(key) or text.startswith("tcp://"):
            continue
        name = key.removeprefix(PREFIX).lower()
        if name not in known and name != CONFIG:
            hint = did_you_mean(key, map(variable, [*known, CONFIG]))
            raise SettingsError(f"unknown setting {key}{hint}")
        if text:
            values[name] = _split(name, text)
    return values


def read_file(path: Path, known: Collection[str]) -> dict[str, Any]:
    """Settings of a TOML file: ``port = 8000``, ``cors_origins = ["http://page"]``.

    Raises:
        SettingsError: it cannot be read, is no TOML, names what is no setting, or holds a secret.
    """
    try:
        with path.open("rb") as file:
            table = tomllib.load(file)
    except OSError as exc:
        raise SettingsError(f"config '{path}': {exc.strerror}") from None
    except ValueError as exc:  # no TOML, or no UTF-8
        raise SettingsError(f"config '{path}': {printable(str(exc))}") from None
    problems = [problem for name in table if (problem := _problem(name, known))]
    if problems:
        raise SettingsError(f"config '{path}': {'; '.join(problems)}")
    return {name: _split(name, value) for name, value in table.items()}


def _problem(name: str, known: Collection[str]) -> str | None:
    if name in SECRETS:
        return f"{name} is a secret, expected it in {variable(name)}"
    return None if name in known else f"unknown setting '{printable(name)}'{did_you_mean(name, known)}"


def _split(name: str, value: Any) -> Any:
    """A list as settings hold it, of text with commas."""
    if name in LISTS and isinstance(value, str):
        return tuple(filter(None, map(str.strip, value.split(","))))
    return value
