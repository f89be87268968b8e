"""Spans of requests, for those who install the extra ``[otel]`` and say so in the settings; else nothing is loaded.

A request is told of when it is over, in one go: what it costs while it runs is nothing.
"""

from __future__ import annotations

from app.settings import Settings, SettingsError
from app.tracing.request import Spans


def open_spans(settings: Settings) -> Spans | None:
    """Where the spans of a server go; None where nobody wants any.

    Raises:
        SettingsError: the extra is not installed, or the OTEL_* variables ask for something that there is not.
    """
    if not settings.otel:
        return None
    try:
        from app.tracing.otel import OtelSpans, exporters
    except ModuleNotFoundError as exc:
        raise SettingsError(
            f"otel needs an extra that is not installed ({exc.name}): pip install 'pnnx-serve[otel]'"
        ) from None
    return OtelSpans(exporters())


def check_spans(settings: Settings) -> None:
    """Look whether there can be spans, where they are wanted.

    Raises:
        SettingsError: as ``open_spans`` does.
    """
    if settings.otel:
        try:
            from app.tracing.otel import check_exporters
        except ModuleNotFoundError as exc:
            raise SettingsError(
                f"otel needs an extra that is not installed ({exc.name}): pip install 'pnnx-serve[otel]'"
            ) from None
        check_exporters()
