"""SVG elements as text; texts of a model are escaped here and nowhere else."""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

from app.render.formatting import cleaned


def element(tag: str, *children: str, **attributes: object) -> str:
    """Return ``<tag key="value">children</tag>``; children are markup, attribute values are text.

    In attribute names an underscore stands for a hyphen, and a final one is dropped (``class_``). None is left out.
    """
    pairs = "".join(
        f" {key.rstrip('_').replace('_', '-')}={quoteattr(cleaned(_plain(value)))}"
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{tag}{pairs}>{''.join(children)}</{tag}>" if children else f"<{tag}{pairs}/>"


def text(content: str) -> str:
    """Return text as markup, with line breaks kept."""
    return "\n".join(escape(cleaned(line)) for line in content.split("\n"))


def number(value: float) -> str:
    """Return a coordinate to a tenth of a pixel, without a trailing zero."""
    return f"{value:.1f}".removesuffix(".0")


def _plain(value: object) -> str:
    return number(value) if isinstance(value, float) else str(value)
