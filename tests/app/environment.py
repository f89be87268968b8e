"""Settings as environment variables."""

from __future__ import annotations

from app.settings import Settings, variable


def environment(settings: Settings) -> dict[str, str]:
    """Return the variables from which ``Settings.from_env`` makes these settings."""
    values = {variable(name): getattr(settings, name) for name in Settings.model_fields}
    return {
        name: ",".join(value) if isinstance(value, tuple) else str(value)
        for name, value in values.items()
        if value not in (None, ())
    }
