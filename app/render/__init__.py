"""A graph's description as text: JSON, SVG, DOT, Mermaid or a table.

Pure functions from the dict of ``graph.describe()``; no outside program, nothing read or written. The parameter file
itself is not here: ``graph.save`` writes that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from app.errors import InvalidRequestError
from app.render.description import Description, read_description
from app.render.document import render_json
from app.render.dot import render_dot
from app.render.mermaid import render_mermaid
from app.render.profile import with_times
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
    """The description in one of ``FORMATS``; keys a graph has no value for may be absent from it.

    Raises:
        InvalidRequestError: for any other format.
    """
    if format == "json":
        return render_json(description)
    if format not in _DRAWINGS:
        raise InvalidRequestError(f"format: found {format!r}, expected one of {', '.join(FORMATS)}")
    return _DRAWINGS[format](read_description(description))


__all__ = ["FORMATS", "MEDIA_TYPES", "render", "with_times"]
