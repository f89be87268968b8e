"""Elements as text. The only place where texts of a model enter the markup, and all of them are escaped here."""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

from app.render.formatting import cleaned


def element(tag: str, *children: str, **attributes: object) -> str:
    """``<tag key="value">children</tag>``; children are markup, attribute values are text.

    An underscore stands for the hyphen in attribute names; a final one is dropped (``class_``). None is left out.
    """
    pairs = "".join(
        f" {key.rstrip('_').replace('_', '-')}={quoteattr(cleaned(_plain(value)))}"
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{tag}{pairs}>{''.join(children)}</{tag}>" if children else f"<{tag}{pairs}/>"


def text(content: str) -> str:
    """Text as markup, line breaks kept."""
    return "\n".join(escape(cleaned(line)) for line in content.split("\n"))


def number(value: float) -> str:
    """A coordinate to a tenth of a pixel, without a needless zero."""
    return f"{value:.1f}".removesuffix(".0")


def _plain(value: object) -> str:
    return number(value) if isinstance(value, float) else str(value)
