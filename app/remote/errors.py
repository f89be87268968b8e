"""What is wrong with a remote store."""

from __future__ import annotations

from app.errors import ConfigError


class SourceError(ConfigError):
    """It cannot be reached or read, or is not what it should be. Nothing it says holds a credential."""
