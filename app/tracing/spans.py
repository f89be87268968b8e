"""Spans of requests, for those who install the extra ``[otel]`` and say so in the settings; else nothing is loaded.

A request is told of when it is over, in one go: what it costs while it runs is nothing.
"""

from __future__ import annotations

from types import ModuleType

from app.settings import Settings, SettingsError
from app.tracing.request import Spans


def open_spans(settings: Settings) -> Spans | None:
    """Return where the spans of a server go; None where the settings do not ask for them.

    Raises:
        SettingsError: the extra is not installed, or the OTEL_* variables ask for something that there is not.
    """
    if (otel := _otel(settings)) is None:
        return None
    spans: Spans = otel.OtelSpans(otel.exporters())
    return spans


def check_spans(settings: Settings) -> None:
    """Check that there can be spans, where they are wanted.

    Raises:
        SettingsError: as ``open_spans`` does.
    """
    if (otel := _otel(settings)) is not None:
        otel.check_exporters()


def _otel(settings: Settings) -> ModuleType | None:
    if not settings.otel:
        return None
    try:
        import app.tracing.otel as otel
    except ModuleNotFoundError as exc:
        raise SettingsError(
            f"otel needs an extra that is not installed ({exc.name}): pip install 'pnnx-serve[otel]'"
        ) from None
    return otel
