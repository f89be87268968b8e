"""The box of one operator: its contents, size and markup.

Operators are cards: a coloured head with the type, below it name, parameters and output shapes. Inputs, outputs and
constants of the graph are pills of one line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from app.render.caption import key_params, output_shapes, tooltip
from app.render.description import Description, Operator
from app.render.family import family_of
from app.render.formatting import percent_text, shortened, text_width, time_text
from app.render.layout import Box
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
