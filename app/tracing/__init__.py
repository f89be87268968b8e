"""Tracing of requests: ids, W3C trace contexts, and spans through OpenTelemetry.

Spans need the extra ``[otel]`` and the setting ``otel``; without them OpenTelemetry is not imported. A request's spans
are recorded after it has ended, so that tracing costs nothing while it runs.
"""

from __future__ import annotations

from types import ModuleType

from app.settings import Settings, SettingsError
from app.tracing.request import Spans


def open_spans(settings: Settings) -> Spans | None:
    """Return the recorder of a server's spans, or None when the settings do not ask for spans.

    Raises:
        SettingsError: the extra is not installed, or an OTEL_* variable is wrong.
    """
    if (otel := _otel(settings)) is None:
        return None
    spans: Spans = otel.OtelSpans(otel.exporters())
    return spans


def check_spans(settings: Settings) -> None:
    """Check that spans can be recorded if the settings ask for them.

    Raises:
        SettingsError: as ``open_spans``.
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
