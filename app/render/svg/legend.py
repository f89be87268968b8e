"""The head of the drawing: title, totals, and the legend of colours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.render.description import Description
from app.render.family import FAMILIES
from app.render.formatting import percent_text, text_width, time_text, totals_text
from app.render.svg.card import Card
from app.render.svg.markup import element, number, text

_ROW: Final = 20
_GAP: Final = 18
_SWATCH: Final = 11
_HEAT_WIDTH: Final = 120
_HEAT_STEPS: Final = 12


@dataclass(frozen=True, slots=True)
class Legend:
    """Markup with the origin at its upper left corner, and its size in pixels."""

    markup: str
    width: float
    height: float


def summary(description: Description) -> str:
    """Return the graph in one line: totals, time, back end."""
    parts = [totals_text(description.totals)]
    parts += [time_text(description.time_us)] if description.time_us is not None else []
    parts += [f"{description.backend} back end"] if description.backend else []
    return " · ".join(parts)


def draw_legend(description: Description, cards: Sequence[Card], title: str, width: float) -> Legend:
    """Return the head, its swatches wrapped to the width."""
    about = summary(description)
    parts = [
        element("text", text(title), class_="pnnx-graph-title", x=0, y=16),
        element("text", text(about), class_="pnnx-graph-summary", x=0, y=38),
    ]
    x, y, reach = 0.0, 62.0, max(text_width(title, 18) * 1.06, text_width(about, 12))
    for family, label in _entries(cards):
        entry = _SWATCH + 6 + text_width(label, 11)
        if x and x + entry > width:
            x, y = 0.0, y + _ROW
        parts.append(_swatch(family, label, x, y))
        reach = max(reach, x + entry)
        x += entry + _GAP
    if any(card.heat is not None for card in cards):
        y += _ROW + 4
        parts.append(_heat_scale(_hottest(description), y))
    return Legend(element("g", *parts, class_="pnnx-graph-legend"), reach, y + 8)


def _entries(cards: Sequence[Card]) -> list[tuple[str, str]]:
    counts = Counter(card.family for card in cards)
    return [(family, f"{family} {counts[family]}") for family in FAMILIES if counts[family]]


def _swatch(family: str, label: str, x: float, y: float) -> str:
    square = element("rect", class_="pnnx-graph-fill", width=_SWATCH, height=_SWATCH, rx=3, y=-9.5)
    words = element("text", text(label), x=_SWATCH + 6)
    return element("g", square, words, class_=f"pnnx-graph-{family}", transform=f"translate({number(x)} {number(y)})")


def _heat_scale(hottest: float, y: float) -> str:
    """Return a row of cells in the colours of the cards, for shares of the time from 0 to the largest."""
    cell = _HEAT_WIDTH / _HEAT_STEPS
    cells = [
        element(
            "rect", class_="pnnx-graph-heat", x=cell * i, y=-9.5, width=cell, height=_SWATCH,
            opacity=f"{0.85 * ((i + 0.5) / _HEAT_STEPS) ** 0.5:.2f}",
        )
        for i in range(_HEAT_STEPS)
    ]  # fmt: skip
    words = element("text", text(f"share of the time, 0 to {percent_text(hottest)}"), x=_HEAT_WIDTH + 8)
    return element("g", *cells, words, transform=f"translate(0 {number(y)})")


def _hottest(description: Description) -> float:
    return max((description.share(operator) or 0.0 for operator in description.operators), default=0.0)
