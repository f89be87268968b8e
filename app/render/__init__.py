"""A graph's description as JSON, SVG, DOT, Mermaid or a table.

All functions are pure: they take the dict of ``graph.describe()``, run no other program, and read or write no files.
``graph.save`` writes the parameter file itself.

In DOT and Mermaid node ids are generated; texts of the model are escaped by each language's rules.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from app.errors import InvalidRequestError
from app.render.caption import COLOURS, FAMILIES, TEXT, family_of, key_params, output_shapes, tooltip
from app.render.description import Description, Operator, read_description
from app.render.formatting import cleaned, percent_text, shortened, time_text
from app.render.svg import render_svg
from app.render.table import render_text

_LONGEST: Final = 60
# All other characters become numeric entities, since a label may be parsed as HTML or Markdown.
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ,.:=+-/()×→·…")
__all__ = ["FORMATS", "MEDIA_TYPES", "render", "with_times"]


def render_dot(description: Description) -> str:
    """Return a directed graph in the DOT language, one node per operator in execution order."""
    lines = [
        f"digraph {_quoted(description.name)} {{",
        "  rankdir=TB;",
        f'  node [shape=box, style="rounded,filled", fontname=Helvetica, fontsize=11, penwidth=0, fontcolor="{TEXT}"];',
        '  edge [fontname="Helvetica", fontsize=9, color="#94a3b8", fontcolor="#475569"];',
    ]
    lines += [_node(i, operator, description) for i, operator in enumerate(description.operators)]
    for name, producer, users in description.links():
        operand = description.operands.get(name)
        label = _quoted(operand.shape_text if operand is not None else "")
        lines += [f"  n{producer} -> n{user} [label={label}, tooltip={_quoted(name)}];" for user in users]
    return "\n".join([*lines, "}", ""])


def _node(number: int, operator: Operator, description: Description) -> str:
    label = "\\n".join(map(_escaped, _words(operator, description)))
    hint = "\\n".join(_escaped(line) for line in tooltip(operator, description))
    return f'  n{number} [label="{label}", fillcolor="{COLOURS[family_of(operator.type)]}", tooltip="{hint}"];'


def _quoted(text: str) -> str:
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    r"""Escape quotes and backslashes, which would begin an escape such as ``\N``."""
    return cleaned(text).replace("\\", "\\\\").replace('"', '\\"')


def render_mermaid(description: Description) -> str:
    """Return a flowchart from top to bottom, one node per operator in execution order."""
    families = [family_of(operator.type) for operator in description.operators]
    lines = ["flowchart TD"]
    lines += [f'  n{i}["{_label(operator, description)}"]' for i, operator in enumerate(description.operators)]
    lines += [f"  n{producer} --> n{user}" for _, producer, users in description.links() for user in users]
    for family in FAMILIES:
        members = ",".join(f"n{i}" for i, own in enumerate(families) if own == family)
        if members:
            lines.append(f"  classDef {family} fill:{COLOURS[family]},color:{TEXT},stroke:none")
            lines.append(f"  class {members} {family}")
    return "\n".join([*lines, ""])


def _label(operator: Operator, description: Description) -> str:
    return "<br/>".join(map(_entities, _words(operator, description)))


def _words(operator: Operator, description: Description) -> list[str]:
    """Return the lines of a node."""
    words = [operator.type, operator.name, key_params(operator), output_shapes(operator, description)]
    if operator.time_us is not None:
        words.append(f"{time_text(operator.time_us)} ({percent_text(description.share(operator) or 0.0)})")
    return [shortened(word, _LONGEST) for word in words if word]


def _entities(text: str) -> str:
    return "".join(char if char in _PLAIN else f"#{ord(char)};" for char in cleaned(text))


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
