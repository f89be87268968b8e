"""Position of a picture on the network's canvas: one formula for stretch, crop, letterbox, limit and none.

The picture is resized to ``resized`` and the canvas laid on it with its corner at ``origin``: positive if the canvas
crops the picture, negative if it extends beyond it (letterbox). Sizes are (width, height), as in Pillow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.images.config import PreprocessConfig


class Placement(NamedTuple):
    """Position of a picture of size ``picture`` on a canvas of size ``canvas``; whole pixels but for max_aspect."""

    picture: tuple[int, int]
    resized: tuple[float, float]
    canvas: tuple[int, int]
    origin: tuple[float, float] = (0, 0)

    @classmethod
    def identity(cls, size: tuple[int, int]) -> Placement:
        """Return the placement of a canvas that equals the picture, as for a tensor sent directly."""
        return cls(picture=size, resized=size, canvas=size)

    @property
    def covered(self) -> tuple[float, float, float, float]:
        """Return the part of the canvas covered by the picture: x0 y0 x1 y1 in canvas pixels."""
        starts = [max(-origin, 0) for origin in self.origin]
        ends = [min(resized - origin, canvas) for resized, origin, canvas in self._axes]
        return starts[0], starts[1], ends[0], ends[1]

    @property
    def shown(self) -> tuple[int, int, int, int]:
        """Return the part of the picture whose pixel centres lie on the canvas: x0 y0 x1 y1 in picture pixels."""
        ends = np.add(self.covered, np.tile(self.origin, 2)) * np.tile(self.picture, 2) / np.tile(self.resized, 2)
        x0, y0, x1, y1 = (int(end) for end in np.ceil(ends - 0.5))
        return x0, y0, x1, y1

    def on_canvas(self, box: tuple[int, int, int, int]) -> tuple[float, float, float, float]:
        """Return a box in picture pixels as canvas pixels; it may extend beyond the canvas."""
        moved = np.multiply(box, np.tile(self.resized, 2)) / np.tile(self.picture, 2) - np.tile(self.origin, 2)
        x0, y0, x1, y1 = moved.tolist()
        return x0, y0, x1, y1

    def to_picture(self, boxes: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return boxes (n, 4) as x0 y0 x1 y1 in canvas pixels as picture pixels, clipped to the picture."""
        clipped: NDArray[np.floating] = np.clip(self.points(boxes.reshape(-1, 2, 2)), 0, self.picture)
        return clipped.reshape(-1, 4)

    def points(self, points: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return points (..., 2) in canvas pixels as picture pixels in the same dtype; they may lie outside of it."""
        origin, resized, picture = np.array((self.origin, self.resized, self.picture), points.dtype)
        moved: NDArray[np.floating] = (points + origin) / resized * picture
        return moved

    @property
    def _axes(self) -> Iterator[tuple[float, float, int]]:
        return zip(self.resized, self.origin, self.canvas, strict=True)


def place(picture: tuple[int, int], canvas: tuple[int, int], config: PreprocessConfig) -> Placement:
    """Return the placement by the model's resize rule.

    crop resizes as torchvision's Resize(size / crop_fraction) followed by CenterCrop(size) does, letterbox as the YOLO
    family does: centred, the odd pixel to the right and below. A letterbox of which one side follows lies at the top
    left, as text recognisers have it.
    """
    if config.follows:
        return _following(picture, canvas, config)
    if config.resize == "limit":
        return _limited(picture, canvas, config)
    if config.resize == "crop":
        return _crop(picture, canvas, config.crop_fraction)
    if config.resize == "letterbox":
        return _letterbox(picture, canvas, config.align == "corner")
    if config.resize == "none":
        return Placement(picture=picture, resized=picture, canvas=canvas)
    return Placement(picture=picture, resized=canvas, canvas=canvas)


def _crop(picture: tuple[int, int], canvas: tuple[int, int], fraction: float) -> Placement:
    (width, height), (cover_width, cover_height) = picture, (round(canvas[0] / fraction), round(canvas[1] / fraction))
    if cover_height * width >= cover_width * height:
        resized = (cover_height * width // height, cover_height)
    else:
        resized = (cover_width, cover_width * height // width)
    origin = (round((resized[0] - canvas[0]) / 2), round((resized[1] - canvas[1]) / 2))
    return Placement(picture=picture, resized=resized, canvas=canvas, origin=origin)


def _letterbox(picture: tuple[int, int], canvas: tuple[int, int], is_at_corner: bool) -> Placement:
    ratio = min(canvas[0] / picture[0], canvas[1] / picture[1])
    resized = (max(1, round(picture[0] * ratio)), max(1, round(picture[1] * ratio)))
    origin = (-((canvas[0] - resized[0]) // 2), -((canvas[1] - resized[1]) // 2)) if not is_at_corner else (0, 0)
    return Placement(picture=picture, resized=resized, canvas=canvas, origin=origin)


def following_canvas(picture: tuple[int, int], config: PreprocessConfig) -> tuple[int, int]:
    """Return the smallest canvas for a picture at the configured height, or width; the other side follows.

    Rounded as PaddleOCR does: down, so that the longest picture of a batch is not padded.
    """
    height, width = config.size or (0, 0)
    across = width == 0
    known, longer, shorter = (height, *picture) if across else (width, *reversed(picture))
    side = max(1, config.min_side or 1, int(known * (longer / shorter)))
    side = rounded_up(min(side, config.max_side or side), config.multiple)
    return (side, height) if across else (width, side)


def padded_size(picture: tuple[int, int], config: PreprocessConfig) -> tuple[int, int]:
    """Return the size of a picture with what is added above and below, as RapidOCR does."""
    width, height = picture
    if config.max_aspect is None or width <= config.max_aspect * height:
        return picture
    return width, height + 2 * ((2 * int(width / config.max_aspect) - height) // 2)


def _limited(picture: tuple[int, int], canvas: tuple[int, int], config: PreprocessConfig) -> Placement:
    """Return the placement of a picture that is padded, then resized."""
    padded = padded_size(picture, config)
    if padded == picture:
        return Placement(picture=picture, resized=canvas, canvas=canvas)
    scale = canvas[1] / padded[1]
    above = (padded[1] - picture[1]) // 2
    return Placement(picture, resized=(canvas[0], picture[1] * scale), canvas=canvas, origin=(0, -above * scale))


def rounded_up(side: int, multiple: int) -> int:
    """Return the least multiple that is not less than ``side``."""
    return -(-side // multiple) * multiple


def _following(picture: tuple[int, int], canvas: tuple[int, int], config: PreprocessConfig) -> Placement:
    width, height = canvas
    if config.size is not None and config.size[1] == 0:
        resized = (min(math.ceil(height * (picture[0] / picture[1])), config.max_side or width, width), height)
    else:
        resized = (width, min(math.ceil(width * (picture[1] / picture[0])), config.max_side or height, height))
    return Placement(picture=picture, resized=resized, canvas=canvas)


def limited_canvas(picture: tuple[int, int], config: PreprocessConfig) -> tuple[int, int]:
    """Return the picture's size with its sides between the limits, each rounded to a multiple, as DBNet does.

    A picture of an extreme shape is padded first.
    """
    picture = padded_size(picture, config)
    ratio, shorter, longer = 1.0, min(picture), max(picture)
    if config.min_side is not None and shorter < config.min_side:
        ratio = config.min_side / shorter
    if config.max_side is not None and longer * ratio > config.max_side:
        ratio = config.max_side / longer
    multiple = config.multiple
    width, height = (max(multiple, round(int(side * ratio) / multiple) * multiple) for side in picture)
    return width, height
