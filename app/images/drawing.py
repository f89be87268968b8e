"""Drawing of predictions on pictures (boxes with labels, masks), and encoding as PNG."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from PIL import Image, ImageDraw, ImageFont

from app.images.palette import generated, text_on

# Fractions of the sides: line width of the shorter side, text size of their mean.
_LINE: Final = 1 / 200
_TEXT: Final = 1 / 40
_LEAST_TEXT: Final = 11.0
_LEAST_READABLE: Final = 7.0
_MOST_CHARACTERS: Final = 60
# Score from which on a key point is drawn.
_LEAST_SCORE: Final = 0.5


def blend(picture: Image.Image, mask: Image.Image) -> Image.Image:
    """Return the picture with a mask of the same size blended over it at half opacity."""
    colors = mask.convert("RGBA")
    picture.paste(colors.convert("RGB"), (0, 0), colors.getchannel("A").point(lambda alpha: alpha // 2))
    return picture


def draw_boxes(picture: Image.Image, found: Sequence[Mapping[str, Any]]) -> Image.Image:
    """Draw boxes with label and score in the colour of the class, the highest score on top.

    Masks and key points are drawn too. A polygon replaces its box and label: texts are close to each other.
    """
    canvas = ImageDraw.Draw(picture)
    width = max(1, round(min(picture.size) * _LINE))
    for row in reversed(found):
        if mask := row.get("mask"):
            _draw_mask(picture, from_text(mask), row)
    for row in reversed(found):
        color = generated(row["index"])
        if polygon := row.get("polygon"):
            canvas.polygon([tuple(point) for point in polygon], outline=color, width=width)
        else:
            canvas.rectangle(pixels(row["box"], picture.size), outline=color, width=width)
        for x, y, *score in row.get("keypoints", ()):
            if x is not None and y is not None and (not score or (score[0] or 0) >= _LEAST_SCORE):
                canvas.circle((x, y), 2 * width, fill=color, outline="white")
    for row in reversed(found):
        if not row.get("polygon"):
            _draw_label(canvas, _caption(row), row, picture.size)
    return picture


def _draw_mask(picture: Image.Image, png: bytes, row: Mapping[str, Any]) -> None:
    """Lay the colour of a class over the pixels of a mask, which covers the whole pixels of a box."""
    left, top, right, bottom = (*map(math.floor, row["box"][:2]), *map(math.ceil, row["box"][2:]))
    mask = decode_png(png).convert("L").resize((max(1, right - left), max(1, bottom - top)), Image.Resampling.NEAREST)
    picture.paste(generated(row["index"]), (left, top), mask.point(lambda value: value // 2))


def pixels(box: Sequence[float], size: tuple[int, int]) -> tuple[int, int, int, int]:
    """Return the outermost pixels of a box (left, top, right, bottom) in a picture of size (width, height)."""
    left, top = (min(int(box[axis]), size[axis] - 1) for axis in (0, 1))
    right, bottom = (min(max(round(box[axis + 2]) - 1, start), size[axis] - 1) for axis, start in ((0, left), (1, top)))
    return left, top, right, bottom


def _draw_label(canvas: ImageDraw.ImageDraw, text: str, row: Mapping[str, Any], size: tuple[int, int]) -> None:
    """Draw the label above the box, or inside it at the top edge; shrink it to fit the width, or omit it."""
    points = max(_LEAST_TEXT, sum(size) / 2 * _TEXT)
    points = min(points, points * size[0] / (canvas.textlength(text, font=ImageFont.load_default(points)) + points))
    if points < _LEAST_READABLE:
        return
    font, margin = ImageFont.load_default(points), round(points / 4)
    _, _, width, height = (round(end) + margin for end in canvas.textbbox((margin, 0), text, font=font))
    left, top, _, _ = pixels(row["box"], size)
    x, y = min(left, size[0] - width), top - height if top >= height else min(top, size[1] - height)
    if min(x, y) >= 0:
        color = generated(row["index"])
        canvas.rectangle((x, y, x + width - 1, y + height - 1), fill=color)
        canvas.text((x + margin, y), text, fill=text_on(color), font=font)


def _caption(row: Mapping[str, Any]) -> str:
    label = " ".join(str(row["label"]).split())
    short = label if len(label) <= _MOST_CHARACTERS else f"{label[: _MOST_CHARACTERS - 3]}..."
    return f"{short} {row['score']:.2f}"


# Higher levels take several times as long and hardly shrink photographs.
_COMPRESSION: Final = 1


def encode_png(image: Image.Image, **options: Any) -> bytes:
    """Return the PNG file; options are Pillow's."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=_COMPRESSION, **options)
    return buffer.getvalue()


def to_text(png: bytes) -> str:
    """Return base64 text, as accepted under "image" in a request."""
    return base64.b64encode(png).decode()


def from_text(text: str) -> bytes:
    """Return the PNG file from its base64 text."""
    return base64.b64decode(text)


def decode_png(png: bytes) -> Image.Image:
    """Return the picture of a PNG file made by ``encode_png``."""
    return Image.open(io.BytesIO(png), formats=("PNG",))
