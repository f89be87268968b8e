"""Generator of images of shapes with their boxes: the data of the shapes model.

A box is x0 y0 x1 y1 in pixels, tight around the shape. Shapes lie wholly inside the image, differ in colour from their
background, and hide little of each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFilter

LABELS = ("circle", "square", "triangle", "star", "cross")
MOST_SHAPES = 6
RADII = 9.0, 34.0  # of the circle around a shape, in pixels of a picture with sides of 128
FINER = 3  # drawn so many times as large, then reduced: smooth edges
MOST_HIDDEN = 0.15  # of the smaller of two boxes
LEAST_CONTRAST = 90.0  # distance of two colours in RGB

Floats = npt.NDArray[np.float64]
Color = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """An RGB image with its boxes (n, 4) and their indices into LABELS (n,)."""

    picture: Image.Image
    boxes: Floats
    classes: npt.NDArray[np.int64]


def draw_scene(chance: np.random.Generator, size: tuple[int, int] = (128, 128)) -> Scene:
    """Return an image of (width, height) with one to six shapes; one in thirty has none."""
    canvas = _draw_background(chance, size)
    _draw_clutter(canvas, chance)
    boxes: list[Floats] = []
    classes: list[int] = []
    wanted = int(chance.integers(1, MOST_SHAPES + 1)) if chance.random() > 1 / 30 else 0
    for _ in range(wanted):
        label = int(chance.integers(len(LABELS)))
        outline = _place(outline_of(LABELS[label]), boxes, chance, size)
        if outline is not None:
            boxes.append(box_around(outline))
            classes.append(label)
            _draw_shape(canvas, outline, chance)
    return Scene(
        picture=_photograph(canvas, chance, size),
        boxes=np.array(boxes).reshape(-1, 4),
        classes=np.array(classes, np.int64),
    )


def outline_of(label: str) -> Floats:
    """Return the corners (n, 2) of a shape in the unit circle."""
    if label == "circle":
        return _on_circle(72)
    if label == "star":
        return _on_circle(10) * np.where(np.arange(10) % 2, 0.42, 1)[:, None]
    if label == "cross":
        long, short = math.cos(0.33), math.sin(0.33)
        arm = np.array([[long, -short], [long, short], [short, short]])
        quarter = np.array([[0, 1], [-1, 0]])
        return np.concatenate([arm @ np.linalg.matrix_power(quarter, turns) for turns in range(4)])
    return _on_circle({"triangle": 3, "square": 4}[label])


def box_around(outline: Floats) -> Floats:
    return np.concatenate([outline.min(axis=0), outline.max(axis=0)])


def _on_circle(corners: int) -> Floats:
    angles = np.arange(corners) * 2 * math.pi / corners
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def _place(outline: Floats, boxes: list[Floats], chance: np.random.Generator, size: tuple[int, int]) -> Floats | None:
    """Return the outline, rotated and moved to a free place; None if none was found."""
    smallest, largest = (math.log(radius * min(size) / 128) for radius in RADII)
    for _ in range(30):
        radius, turn = math.exp(chance.uniform(smallest, largest)), chance.uniform(0, 2 * math.pi)
        turned = outline @ np.array([[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]]) * radius
        low, high = 1 - turned.min(axis=0), np.array(size) - 1 - turned.max(axis=0)
        if (low < high).all():
            placed: Floats = turned + chance.uniform(low, high)
            if all(_hidden(box_around(placed), box) <= MOST_HIDDEN for box in boxes):
                return placed
    return None


def _hidden(a: Floats, b: Floats) -> float:
    sides = np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0)
    return float(sides.prod() / min((a[2:] - a[:2]).prod(), (b[2:] - b[:2]).prod()))


def _draw_background(chance: np.random.Generator, size: tuple[int, int]) -> Image.Image:
    """Draw one colour, a gradient, or blotches at FINER times the size."""
    cells = int(chance.choice([1, 2, 3, 6, 12]))
    base = chance.uniform(0, 255, 3)
    colors = base + chance.uniform(-1, 1, (cells, cells, 3)) * chance.uniform(10, 80)
    blotches = Image.fromarray(np.clip(colors, 0, 255).astype(np.uint8))
    return blotches.resize((size[0] * FINER, size[1] * FINER), Image.Resampling.BICUBIC)


def _draw_clutter(canvas: Image.Image, chance: np.random.Generator) -> None:
    """Draw thin lines and specks, which are not shapes."""
    draw = ImageDraw.Draw(canvas)
    for _ in range(int(chance.integers(0, 7))):
        start, end = chance.uniform(0, canvas.size, (2, 2))
        if chance.random() < 0.4:
            end = start + chance.uniform(-3, 3, 2) * FINER
        draw.line([tuple(start), tuple(end)], fill=_color(chance), width=int(chance.integers(1, 2 * FINER)))


def _draw_shape(canvas: Image.Image, outline: Floats, chance: np.random.Generator) -> None:
    """Draw a shape filled, filled with an outline, or as an outline."""
    draw = ImageDraw.Draw(canvas)
    center = outline.mean(axis=0)
    inner = center + (outline - center) * chance.uniform(0.6, 0.8)
    behind = canvas.getpixel((int(center[0] * FINER), int(center[1] * FINER)))
    color = _color(chance, unlike=np.array(behind))
    kind = chance.random()
    hole = canvas.copy() if kind > 0.8 else None
    draw.polygon(_points(outline), fill=color)
    if hole is not None:
        mask = Image.new("L", canvas.size)
        ImageDraw.Draw(mask).polygon(_points(inner), fill=255)
        canvas.paste(hole, mask=mask)
    elif kind > 0.5:
        draw.polygon(_points(inner), fill=_color(chance))


def _points(outline: Floats) -> list[tuple[float, float]]:
    # Pillow's coordinates are pixel centres, ours are pixel edges.
    return [(x * FINER - 0.5, y * FINER - 0.5) for x, y in outline.tolist()]


def _color(chance: np.random.Generator, unlike: Floats | None = None) -> Color:
    while True:
        color = chance.integers(0, 256, 3)
        if unlike is None or np.linalg.norm(color - unlike) >= LEAST_CONTRAST:
            return int(color[0]), int(color[1]), int(color[2])


def _photograph(canvas: Image.Image, chance: np.random.Generator, size: tuple[int, int]) -> Image.Image:
    """Return the image reduced, slightly blurred and with noise."""
    picture = canvas.reduce(FINER)
    if chance.random() < 0.3:
        picture = picture.filter(ImageFilter.GaussianBlur(chance.uniform(0.3, 1.0)))
    noise = chance.normal(0, chance.uniform(0, 14), (size[1], size[0], 3))
    return Image.fromarray(np.clip(np.asarray(picture) + noise, 0, 255).round().astype(np.uint8))
