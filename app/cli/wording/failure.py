"""Error messages and exit status."""

from __future__ import annotations

import engine
from app.cli.arguments.options import UsageError
from app.errors import ConfigError, ServiceError
from app.settings import SettingsError
from app.wording import printable


def explain(exc: Exception) -> tuple[str, int]:
    """Return one line and the exit status: 2 for a usage error, else 1. Unexpected errors name their type."""
    if isinstance(exc, (UsageError, SettingsError)):
        return printable(str(exc)), 2
    if isinstance(exc, ServiceError):
        return printable(exc.message), 1
    if isinstance(exc, (engine.EngineError, ConfigError)):
        return printable(str(exc)), 1
    if isinstance(exc, OSError) and exc.strerror:
        return printable(f"{exc.filename}: {exc.strerror}" if exc.filename else exc.strerror), 1
    return printable(f"internal error: {type(exc).__name__}: {exc} (--debug shows where)"), 1
