"""Bar chart of ``bench``: engines and kernels."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from PIL import Image, ImageDraw, ImageFont

from app.cli.arguments.options import UsageError
from app.measuring.timing import Times
from app.render.family import COLOURS
from app.render.formatting import percent_text, shortened, time_text
from app.render.svg.markup import element, number, text

KINDS: Final = (".svg", ".png")
_WIDTH, _MARGIN, _LABEL, _ROW, _SIZE = 860, 24, 260, 22, 12
_INK, _SOFT, _PAGE, _OURS = "#131820", "#535e6e", "#ffffff", COLOURS["conv"]
# Only the slowest kernels are drawn if there are more.
_MOST: Final = 40
# Pixels of a PNG per unit of the drawing.
_SCALE: Final = 2


@dataclass(frozen=True, slots=True)
class _Bar:
    label: str
    value: float
    note: str
    colour: str


@dataclass(frozen=True, slots=True)
class _Word:
    x: float
    y: float
    content: str
    size: int
    colour: str
    is_end: bool = False


@dataclass(frozen=True, slots=True)
class _Box:
    x: float
    y: float
    width: float
    height: float
    colour: str


def check_ending(path: str) -> None:
    """Raise for an unsupported file ending, before anything is measured.

    Raises:
        UsageError: the message names the supported endings.
    """
    if Path(path).suffix.lower() not in KINDS:
        raise UsageError(f"--plot: found {path}, expected a name that ends in {' or '.join(KINDS)}")


def plot(path: str, title: str, times: Mapping[str, Times], kernels: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the file in the format of its ending."""
    shapes = [*_shapes(title, times, kernels)]
    height = max(shape.y for shape in shapes) + _ROW
    return _png(shapes, height) if path.lower().endswith(".png") else _svg(shapes, height, title).encode()


def _shapes(title: str, times: Mapping[str, Times], kernels: Sequence[Mapping[str, Any]]) -> Iterator[_Word | _Box]:
    yield _Word(_MARGIN, _MARGIN + 14, title, 16, _INK)
    top = _MARGIN + 44.0
    engines = [
        _Bar(name, each.least_s, time_text(each.least_s * 1e6), COLOURS["io"] if at else _OURS)
        for at, (name, each) in enumerate(times.items())
    ]
    slowest = sorted(kernels, key=lambda each: -float(each["time_us"]))[:_MOST]
    total = sum(float(each["time_us"]) for each in kernels) or 1.0
    bars = [
        _Bar(
            f"{each['operators'][0]} · {each['kernel']}",
            float(each["time_us"]),
            f"{time_text(each['time_us'])} · {percent_text(each['time_us'] / total)}",
            COLOURS["linear"],
        )
        for each in slowest
    ]
    for heading, rows in (("Fastest run", engines), ("Kernels", bars)):
        if rows:
            yield _Word(_MARGIN, top, heading, 13, _SOFT)
            yield from _rows(rows, top + 10)
            top += 10 + _ROW * len(rows) + 34


def _rows(bars: Sequence[_Bar], top: float) -> Iterator[_Word | _Box]:
    most = max(bar.value for bar in bars) or 1.0
    room = _WIDTH - 2 * _MARGIN - _LABEL - 130
    for at, bar in enumerate(bars):
        y = top + _ROW * at
        width = max(1.0, room * bar.value / most)
        yield _Word(_MARGIN + _LABEL - 10, y + 15, shortened(bar.label, 40, 20), _SIZE, _INK, is_end=True)
        yield _Box(_MARGIN + _LABEL, y + 4, width, _ROW - 8, bar.colour)
        yield _Word(_MARGIN + _LABEL + width + 8, y + 15, bar.note, _SIZE, _SOFT)


def _svg(shapes: Sequence[_Word | _Box], height: float, title: str) -> str:
    drawn = [
        element("rect", x=shape.x, y=shape.y, width=shape.width, height=shape.height, rx=3, fill=shape.colour)
        if isinstance(shape, _Box)
        else element(
            "text", text(shape.content), x=float(shape.x), y=float(shape.y), fill=shape.colour, font_size=shape.size,
            text_anchor="end" if shape.is_end else None,
        )
        for shape in shapes
    ]  # fmt: skip
    return element(
        "svg",
        element("title", text(title)),
        element("rect", width="100%", height="100%", fill=_PAGE),
        *drawn,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_WIDTH} {number(height)}",
        width=_WIDTH,
        height=number(height),
        font_family="system-ui, sans-serif",
    )


def _png(shapes: Sequence[_Word | _Box], height: float) -> bytes:
    picture = Image.new("RGB", (_WIDTH * _SCALE, round(height) * _SCALE), _PAGE)
    pen = ImageDraw.Draw(picture)
    for shape in shapes:
        x, y = shape.x * _SCALE, shape.y * _SCALE
        if isinstance(shape, _Box):
            pen.rectangle((x, y, x + shape.width * _SCALE, y + shape.height * _SCALE), fill=shape.colour)
        else:
            font = ImageFont.load_default(shape.size * _SCALE)
            pen.text((x, y), _plain(shape.content), shape.colour, font, anchor="rs" if shape.is_end else "ls")
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def _plain(content: str) -> str:
    """Replace characters that Pillow's built-in font lacks."""
    return content.replace("µ", "u").encode("latin-1", "replace").decode("latin-1")
