"""The graph as a self-contained SVG: legend, boxes and lines; no scripts, nothing loaded.

It follows the light or dark colour scheme, and can be embedded in a page: all its classes begin with ``pnnx-graph``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.render.caption import operand_text
from app.render.description import Description
from app.render.family import COLOURS, FAMILIES, TEXT
from app.render.formatting import percent_text, shortened, text_width, time_text, totals_text
from app.render.layout import Layout, Net, Route, lay_out
from app.render.svg.card import Card, cards
from app.render.svg.markup import element, number, text

_MARGIN: Final = 24.0
_LEGEND_GAP: Final = 22.0
_LEAST_LEGEND_WIDTH: Final = 560.0
_ARROW: Final = 6.5
_LIGHT: Final = "--page:#ffffff;--body:#ffffff;--edge:#94a3b8;--rim:#cbd5e1;--ink:#0f172a;--soft:#475569;--heat:#ef4444"
_DARK: Final = "--page:#0b1220;--body:#162032;--edge:#64748b;--rim:#334155;--ink:#e2e8f0;--soft:#a3b1c6;--heat:#b91c1c"
_RULES: Final = """
.pnnx-graph{LIGHT;font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,"DejaVu Sans",sans-serif}
@media (prefers-color-scheme:dark){.pnnx-graph{DARK}}
.pnnx-graph-page{fill:var(--page)}
.pnnx-graph-body{fill:var(--body);stroke:var(--rim)}
.pnnx-graph-heat{fill:var(--heat)}
.pnnx-graph-line{fill:none;stroke:var(--edge);stroke-width:1.4}
.pnnx-graph-arrow{fill:var(--edge)}
.pnnx-graph text{font-size:11px;fill:var(--ink);white-space:pre}
.pnnx-graph .pnnx-graph-head{font-size:12px;font-weight:600;fill:TEXT}
.pnnx-graph .pnnx-graph-note{fill:TEXT}
.pnnx-graph .pnnx-graph-name,.pnnx-graph .pnnx-graph-shape{fill:var(--soft)}
.pnnx-graph .pnnx-graph-heat~text.pnnx-graph-name,.pnnx-graph .pnnx-graph-heat~text.pnnx-graph-shape{fill:var(--ink)}
.pnnx-graph .pnnx-graph-title{font-size:18px;font-weight:600}
.pnnx-graph .pnnx-graph-summary{font-size:12px;fill:var(--soft)}
.pnnx-graph .pnnx-graph-middle{text-anchor:middle}
.pnnx-graph .pnnx-graph-end{text-anchor:end}
.pnnx-graph-edge:hover .pnnx-graph-line{stroke:var(--ink);stroke-width:2.4}
.pnnx-graph-edge:hover .pnnx-graph-arrow{fill:var(--ink)}
.pnnx-graph-operator:hover .pnnx-graph-body{stroke:var(--ink)}
"""


def render_svg(description: Description) -> str:
    """Return an SVG document of the graph, from top to bottom in the direction of the values."""
    boxes = cards(description)
    links = description.links()
    nets = [Net(producer, tuple(users)) for _, producer, users in links]
    roots = [i for i, operator in enumerate(description.operators) if operator.type == "pnnx.Input"]
    layout = lay_out([card.size for card in boxes], nets, roots)
    title = shortened(description.name, 80)
    legend = draw_legend(description, boxes, title, max(layout.width, _LEAST_LEGEND_WIDTH))
    edges = [
        _edge(operand_text(name, description), route) for (name, *_), route in zip(links, layout.routes, strict=True)
    ]
    return _document(description, title, legend, layout, [*edges, *_drawn(boxes, layout)])


def _document(description: Description, title: str, legend: Legend, layout: Layout, drawn: Sequence[str]) -> str:
    inner = max(legend.width, layout.width)
    width = inner + 2 * _MARGIN
    height = legend.height + _LEGEND_GAP + layout.height + 2 * _MARGIN
    left, top = _MARGIN + (inner - layout.width) / 2, _MARGIN + legend.height + _LEGEND_GAP
    return element(
        "svg",
        element("title", text(f"Graph of {title}"), id="pnnx-graph-title"),
        element("desc", text(summary(description)), id="pnnx-graph-desc"),
        element("style", style_sheet()),
        element("rect", class_="pnnx-graph-page", width="100%", height="100%"),
        element("g", legend.markup, transform=f"translate({number(_MARGIN)} {number(_MARGIN)})"),
        element("g", *drawn, transform=f"translate({number(left)} {number(top)})"),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {number(width)} {number(height)}",
        width=width,
        height=height,
        class_="pnnx-graph",
        role="img",
        aria_labelledby="pnnx-graph-title pnnx-graph-desc",
    )


def _drawn(boxes: Sequence[Card], layout: Layout) -> list[str]:
    return [card.markup(box) for card, box in zip(boxes, layout.boxes, strict=True)]


def _edge(label: str, route: Route) -> str:
    line = "".join(map(_path, route.strokes))
    arrows = "".join(f"M{_point(x, y)}l-3.2-{_ARROW}h6.4z" for x, y in route.heads)
    return element(
        "g",
        element("title", text(label)),
        element("path", class_="pnnx-graph-line", d=line),
        element("path", class_="pnnx-graph-arrow", d=arrows),
        class_="pnnx-graph-edge",
    )


def _path(stroke: Sequence[tuple[float, float]]) -> str:
    (x, y), parts = stroke[0], [f"M{_point(*stroke[0])}"]
    for to_x, to_y in stroke[1:]:
        if to_x == x:
            parts.append(f"V{number(to_y)}")
        elif to_y == y:
            parts.append(f"H{number(to_x)}")
        else:
            middle = (y + to_y) / 2
            parts.append(f"C{_point(x, middle)} {_point(to_x, middle)} {_point(to_x, to_y)}")
        x, y = to_x, to_y
    return "".join(parts)


def _point(x: float, y: float) -> str:
    return f"{number(x)} {number(y)}"


def style_sheet() -> str:
    """Return the style sheet, without characters that need escaping."""
    rules = _RULES.replace("LIGHT", _LIGHT).replace("DARK", _DARK).replace("TEXT", TEXT)
    colours = "".join(f".pnnx-graph-{family} .pnnx-graph-fill{{fill:{colour}}}\n" for family, colour in COLOURS.items())
    return rules + colours


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
