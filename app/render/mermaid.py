"""The graph as a Mermaid flowchart, which code forges draw inside Markdown. Ids are ours, labels hold no markup."""

from __future__ import annotations

from app.render.caption import key_params, output_shapes
from app.render.description import Description, Operator
from app.render.family import COLOURS, FAMILIES, TEXT, family_of
from app.render.formatting import cleaned, percent_text, shortened, time_text

_LONGEST = 60
# Everything else becomes a numeric entity, for a label may be read as HTML, as Markdown or as the end of itself.
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ,.:=+-/()×→·…")


def render_mermaid(description: Description) -> str:
    """A flowchart from top to bottom, one node for each operator in execution order."""
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
    return "<br/>".join(_escaped(shortened(word, _LONGEST)) for word in words if word)


def _escaped(text: str) -> str:
    return "".join(char if char in _PLAIN else f"#{ord(char)};" for char in cleaned(text))
