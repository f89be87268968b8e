"""Output of results and errors."""

from __future__ import annotations

import sys
from pathlib import Path

import engine
from app.cli.arguments.options import UsageError
from app.codec.answers import dump_json
from app.errors import ConfigError, ServiceError
from app.messages import printable
from app.settings import SettingsError


def write_result(content: bytes, output: str | None) -> None:
    """Write to a file, or to stdout unchanged."""
    if output is not None:
        Path(output).write_bytes(content)
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(content)


def write_json(value: object) -> None:
    """Print a result of ``--json``; NaN and infinities are strings."""
    sys.stdout.write(f"{dump_json(value).decode()}\n")


def display_name(name: str) -> str:
    """Return the name of a stored model, or of a file without folder and endings."""
    return Path(name).name.removesuffix(".param").removesuffix(".pnnx").removesuffix(".onnx")


def explain(exc: Exception) -> tuple[str, int]:
    """Return one line and the exit status: 2 for a usage error, else 1. Unexpected errors name their type."""
    if isinstance(exc, (UsageError, SettingsError)):
        return printable(str(exc)), 2
    if isinstance(exc, ServiceError):
        return printable(exc.message), 1
    if isinstance(exc, (engine.EngineError, ConfigError)):
        return printable(str(exc)), 1
    if isinstance(exc, OSError) and exc.strerror:
        path = exc.filename2 or exc.filename  # the target of a copy
        return printable(f"{path}: {exc.strerror}" if path else exc.strerror), 1
    return printable(f"internal error: {type(exc).__name__}: {exc} (--debug shows where)"), 1
