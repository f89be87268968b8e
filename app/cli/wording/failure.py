"""What the user is told of an error, and the exit status."""

from __future__ import annotations

import engine
from app.cli.arguments.options import UsageError
from app.errors import ConfigError, ServiceError
from app.settings import SettingsError
from app.wording import printable


def explain(exc: Exception) -> tuple[str, int]:
    """One line, and 1, or 2 when the call itself is wrong. What nobody foresaw says of what kind it is."""
    if isinstance(exc, (UsageError, SettingsError)):
        return printable(str(exc)), 2
    if isinstance(exc, ServiceError):
        return printable(exc.message), 1
    if isinstance(exc, (engine.EngineError, ConfigError)):
        return printable(str(exc)), 1
    if isinstance(exc, OSError) and exc.strerror:
        return printable(f"{exc.filename}: {exc.strerror}" if exc.filename else exc.strerror), 1
    return printable(f"internal error: {type(exc).__name__}: {exc} (--debug shows where)"), 1
