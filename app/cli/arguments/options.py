"""Settings given as flags of the command line; a flag overrides the environment variable."""

from __future__ import annotations

import argparse
import os
from typing import Final, Literal, get_args, get_origin

from app.messages import size_text
from app.models.folder.plugins import load_plugins
from app.settings import CONFIG, REMOVED, Settings, variable
from app.thread_limits import limit_threads, thread_budget

# Settings that decide how a model computes, for verbs that run one.
COMPUTING: Final = ("backend", "threads", "winograd", "passes_off", "cache", "cache_dir")


class UsageError(Exception):
    """Error for arguments that do not make sense together."""


def add_setting(parser: argparse._ActionsContainer, name: str) -> None:
    """Add the flag of a setting with its help, unit and default."""
    field = Settings.model_fields[name]
    default = "unset" if field.default in (None, ()) else field.default
    if type(default) is int and field.json_schema_extra == {"unit": "bytes"}:
        default = size_text(default)
    unit = str((field.json_schema_extra or {}).get("unit", ""))  # type: ignore[union-attr]  # a dict, see Settings
    text = f"{field.description} Default: {default}.".replace("%", "%%")
    flag = f"--{name.replace('_', '-')}"
    if field.annotation is bool:
        parser.add_argument(flag, action=argparse.BooleanOptionalAction, help=text)
    elif get_origin(field.annotation) is Literal:
        parser.add_argument(flag, choices=get_args(field.annotation), help=text)
    elif get_origin(field.annotation) is tuple:
        flags = dict.fromkeys((flag.removesuffix("s"), flag))
        parser.add_argument(*flags, dest=name, action="append", metavar=unit.upper(), help=text)
    else:
        parser.add_argument(flag, metavar=unit.upper(), help=text)


def add_config(parser: argparse.ArgumentParser) -> None:
    """Add the flag that names a settings file."""
    parser.add_argument(f"--{CONFIG}", metavar="FILE", help="TOML file of settings; flags and the environment win.")
    for name in REMOVED:
        parser.add_argument(f"--{name.replace('_', '-')}", nargs="?", const="", help=argparse.SUPPRESS)


def read_settings(args: argparse.Namespace, *, concurrent: bool = False) -> Settings:
    """Return the settings from flags, environment and file; set the number of BLAS threads; load plugins.

    Call it before numpy is imported.

    Args:
        args: parsed arguments.
        concurrent: whether runs go on side by side. Each then gets its share of the cores, because BLAS threads of
            several runs on the same cores wait for each other far longer than they compute.

    Raises:
        SettingsError: a variable or key names no setting, a value is out of range, or a plugin cannot be loaded.
    """
    given = {name: getattr(args, name, None) for name in (*Settings.model_fields, *REMOVED, CONFIG)}
    flags = {variable(name): _text(value) for name, value in given.items() if value is not None}
    settings = Settings.from_env({**os.environ, **flags})
    threads = thread_budget(settings.threads, settings.workers).threads
    limit_threads(max(1, threads // (settings.max_in_flight or threads)) if concurrent else threads)
    load_plugins(settings.plugins)
    return settings


def _text(value: object) -> str:
    return ",".join(value) if isinstance(value, list) else str(value)
