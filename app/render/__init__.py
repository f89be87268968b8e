"""A graph's description as JSON, SVG, DOT, Mermaid or a table.

All functions are pure: they take the dict of ``graph.describe()``, run no other program, and read or write no files.
``graph.save`` writes the parameter file itself.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from app.errors import InvalidRequestError
from app.render.description import Description, read_description
from app.render.flowcharts import render_dot, render_mermaid
from app.render.svg import render_svg
from app.render.table import render_text

_DRAWINGS: Final[Mapping[str, Callable[[Description], str]]] = {
    "svg": render_svg,
    "dot": render_dot,
    "mermaid": render_mermaid,
    "text": render_text,
}
MEDIA_TYPES: Final[Mapping[str, str]] = {
    "json": "application/json",
    "svg": "image/svg+xml",
    "dot": "text/vnd.graphviz; charset=utf-8",
    "mermaid": "text/plain; charset=utf-8",
    "text": "text/plain; charset=utf-8",
}
FORMATS: Final = tuple(MEDIA_TYPES)


def render(description: Mapping[str, Any], format: str) -> str:
    """Return the description in one of ``FORMATS``; keys without a value may be missing.

    Raises:
        InvalidRequestError: an unknown format.
    """
    if format == "json":
        return render_json(description)
    if format not in _DRAWINGS:
        raise InvalidRequestError(f"format: found {format!r}, expected one of {', '.join(FORMATS)}")
    return _DRAWINGS[format](read_description(description))


__all__ = ["FORMATS", "MEDIA_TYPES", "render", "with_times"]


def render_json(description: Mapping[str, Any]) -> str:
    """Return indented JSON in ASCII, since names may hold lone surrogates.

    Numbers that JSON cannot write become strings: NaN and infinities as PNNX spells them (``"nan"``, ``"inf"``,
    ``"-inf"``), complex numbers as Python does.
    """
    return json.dumps(_plain(description), indent=2, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def with_times(description: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the description with the ``time_us`` of every operator that has a row in a profile."""
    times = {row["index"]: {"time_us": row["time_us"]} for row in rows}
    operators = [{**operator, **times.get(operator["index"], {})} for operator in description["operators"]]
    return {**description, "operators": operators}
