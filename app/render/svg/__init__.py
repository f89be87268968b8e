"""The graph as a self-contained SVG: legend, boxes and lines; no scripts, nothing loaded.

It follows the light or dark colour scheme, and can be embedded in a page: all its classes begin with ``pnnx-graph``.

Operators are cards: a coloured head with the type, below it name, parameters and output shapes. Inputs, outputs and
constants of the graph are pills of one line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.render.caption import COLOURS, FAMILIES, TEXT, family_of, key_params, operand_text, output_shapes, tooltip
from app.render.description import Description, Operator
from app.render.formatting import percent_text, shortened, text_width, time_text, totals_text
from app.render.layout import Box, Layout, Net, Route, lay_out
from app.render.svg.markup import element, number, text

_HEAD: Final = 22
_LINE: Final = 15
_PADDING: Final = 10
_MOST_CHARACTERS: Final = 42
# Characters kept from the end of a name, where names differ: layer4.1.conv2.
_TAIL: Final = 20
_LEAST_WIDTH: Final = 96
_PILL_HEIGHT: Final = 24
_HEAD_SIZE: Final = 12
_BODY_SIZE: Final = 11
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
_ROW: Final = 20
_GAP: Final = 18
_SWATCH: Final = 11
_HEAT_WIDTH: Final = 120
_HEAT_STEPS: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """Contents of a box: head, a note at its right end, and (kind, text) of the lines below."""

    operator: Operator
    family: str
    head: str
    note: str
    lines: tuple[tuple[str, str], ...]
    tooltip: str
    heat: float | None

    @property
    def is_pill(self) -> bool:
        """Return whether there is only a head."""
        return not self.lines

    @property
    def size(self) -> tuple[float, float]:
        """Return width and height in pixels."""
        head = text_width(self.head, _HEAD_SIZE) * 1.06 + (text_width(self.note, _BODY_SIZE) + 14 if self.note else 0)
        body = max((text_width(line, _BODY_SIZE) for _, line in self.lines), default=0.0)
        width = max(head, body) + 2 * _PADDING
        if self.is_pill:
            return round(width + _PADDING), _PILL_HEIGHT
        return max(_LEAST_WIDTH, round(width)), _HEAD + _LINE * len(self.lines) + 9

    def markup(self, box: Box) -> str:
        """Return the group that draws this card in a box."""
        inner = self._pill(box) if self.is_pill else self._card(box)
        return element(
            "g",
            element("title", text(self.tooltip)),
            *inner,
            class_=f"pnnx-graph-operator pnnx-graph-{self.family}",
            transform=f"translate({number(box.x)} {number(box.y)})",
            data_index=self.operator.index,
            data_name=self.operator.name,
        )

    def _pill(self, box: Box) -> list[str]:
        rect = element("rect", class_="pnnx-graph-fill", width=box.width, height=box.height, rx=box.height / 2)
        return [rect, _text(self.head, "head middle", box.width / 2, 16)]

    def _card(self, box: Box) -> list[str]:
        head = f"M0 {_HEAD}V7a7 7 0 0 1 7-7H{number(box.width - 7)}a7 7 0 0 1 7 7V{_HEAD}z"
        parts = [
            element("rect", class_="pnnx-graph-body", width=box.width, height=box.height, rx=7),
            *self._heat(box),
            element("path", class_="pnnx-graph-fill", d=head),
            _text(self.head, "head", _PADDING, 15.5),
        ]
        if self.note:
            parts.append(_text(self.note, "note end", box.width - _PADDING, 15.5))
        for number_, (kind, line) in enumerate(self.lines):
            parts.append(_text(line, kind, _PADDING, _HEAD + 15 + _LINE * number_))
        return parts

    def _heat(self, box: Box) -> list[str]:
        if self.heat is None:
            return []
        # The square root, since shares are so uneven that otherwise all but a few cards would stay blank.
        opacity = f"{0.85 * self.heat**0.5:.2f}"
        return [element("rect", class_="pnnx-graph-heat", width=box.width, height=box.height, rx=7, opacity=opacity)]


def cards(description: Description) -> list[Card]:
    """Return the card of every operator, in the order of the description."""
    shares = [description.share(operator) for operator in description.operators]
    hottest = max((share for share in shares if share is not None), default=0.0)
    return [
        _card(operator, description, share, hottest)
        for operator, share in zip(description.operators, shares, strict=True)
    ]


def _card(operator: Operator, description: Description, share: float | None, hottest: float) -> Card:
    family = family_of(operator.type)
    pill = family == "io" or operator.type == "pnnx.Attribute"
    lines = () if pill else _lines(operator, description)
    hints = tooltip(operator, description)
    note = ""
    if operator.time_us is not None and not pill:
        note = f"{time_text(operator.time_us)} · {percent_text(share or 0.0)}"
        hints.append(f"{time_text(operator.time_us)}, {percent_text(share or 0.0)} of the whole")
    return Card(
        operator=operator,
        family=family,
        head=_pill_text(operator, description) if pill else _short(operator.type),
        note=note,
        lines=lines,
        tooltip="\n".join(hints),
        heat=share / hottest if share is not None and hottest and not pill else None,
    )


def _lines(operator: Operator, description: Description) -> tuple[tuple[str, str], ...]:
    lines = (
        ("name", shortened(operator.name, _MOST_CHARACTERS, _TAIL)),
        ("params", _short(key_params(operator))),
        ("shape", _short(output_shapes(operator, description))),
    )
    return tuple((kind, line) for kind, line in lines if line)


def _pill_text(operator: Operator, description: Description) -> str:
    operand = description.operands.get((*operator.outputs, *operator.inputs, "")[0])
    about = (operand.shape_text, operand.dtype) if operand is not None else ()
    return " ".join(filter(None, (shortened(operator.name, _MOST_CHARACTERS, _TAIL), *about)))


def _short(content: str) -> str:
    return shortened(content, _MOST_CHARACTERS)


def _text(content: str, kinds: str, x: float, y: float) -> str:
    classes = " ".join(f"pnnx-graph-{kind}" for kind in kinds.split())
    return element("text", text(content), class_=classes, x=float(x), y=float(y))


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
