"""Settings from the command line: a flag whose name is a setting's stands over the environment's variable."""

from __future__ import annotations

import argparse
import os
from typing import Final, Literal, get_args, get_origin

from app.models.folder.plugins import load_plugins
from app.settings import Settings, variable
from app.sources import CONFIG
from app.thread_limits import limit_threads, thread_budget

# What decides how a model computes: for verbs that run one.
COMPUTING: Final = ("backend", "threads", "winograd", "passes_off", "cache", "cache_dir")


class UsageError(Exception):
    """The command line asks for something that cannot be meant."""


def add_setting(parser: argparse._ActionsContainer, name: str) -> None:
    """The flag of a setting, with its help, unit and default."""
    field = Settings.model_fields[name]
    default = "unset" if field.default in (None, ()) else field.default
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
    """The flag that names a file of settings."""
    parser.add_argument(f"--{CONFIG}", metavar="FILE", help="TOML file of settings; flags and the environment win.")


def read_settings(args: argparse.Namespace, *, concurrent: bool = False) -> Settings:
    """The settings of flags, environment and file; also settles the number of BLAS threads, so call it first of all.

    The user's own operators are known from then on.

    concurrent: whether runs go on side by side. Each then gets its share of the cores: BLAS threads of several runs
    that fight for the same cores wait for each other far longer than they compute.

    Raises:
        SettingsError: a variable or key that names no setting, a value out of its range, a plugin that cannot be
            loaded.
    """
    given = {name: getattr(args, name, None) for name in (*Settings.model_fields, CONFIG)}
    flags = {variable(name): _text(value) for name, value in given.items() if value is not None}
    settings = Settings.from_env({**os.environ, **flags})
    threads = thread_budget(settings.threads, settings.workers).threads
    limit_threads(max(1, threads // (settings.max_in_flight or threads)) if concurrent else threads)
    load_plugins(settings.plugins)
    return settings


def _text(value: object) -> str:
    return ",".join(value) if isinstance(value, list) else str(value)
