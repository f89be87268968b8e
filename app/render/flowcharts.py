"""The graph as text for other programs: DOT for Graphviz (``dot -Tpdf``), and Mermaid for code forges.

Node ids are generated; texts of the model are escaped by each language's rules.
"""

from __future__ import annotations

from typing import Final

from app.render.caption import key_params, output_shapes, tooltip
from app.render.description import Description, Operator
from app.render.family import COLOURS, FAMILIES, TEXT, family_of
from app.render.formatting import cleaned, percent_text, shortened, time_text

_LONGEST: Final = 60


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
    words = [operator.type, operator.name, key_params(operator), output_shapes(operator, description)]
    if operator.time_us is not None:
        words.append(f"{time_text(operator.time_us)} ({percent_text(description.share(operator) or 0.0)})")
    label = "\\n".join(_escaped(shortened(word, _LONGEST)) for word in words if word)
    hint = "\\n".join(_escaped(line) for line in tooltip(operator, description))
    return f'  n{number} [label="{label}", fillcolor="{COLOURS[family_of(operator.type)]}", tooltip="{hint}"];'


def _quoted(text: str) -> str:
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    r"""Escape quotes and backslashes, which would begin an escape such as ``\N``."""
    return cleaned(text).replace("\\", "\\\\").replace('"', '\\"')


# All other characters become numeric entities, since a label may be parsed as HTML or Markdown.
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ,.:=+-/()×→·…")


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
    words = [operator.type, operator.name, key_params(operator), output_shapes(operator, description)]
    if operator.time_us is not None:
        words.append(f"{time_text(operator.time_us)} ({percent_text(description.share(operator) or 0.0)})")
    return "<br/>".join(_entities(shortened(word, _LONGEST)) for word in words if word)


def _entities(text: str) -> str:
    return "".join(char if char in _PLAIN else f"#{ord(char)};" for char in cleaned(text))
