"""Position of a picture on the network's canvas: one formula for stretch, crop, letterbox and none.

The picture is resized to ``resized`` and the canvas laid on it with its corner at ``origin``: positive if the canvas
crops the picture, negative if it extends beyond it (letterbox). Sizes are (width, height), as in Pillow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.images.config import PreprocessConfig


class Placement(NamedTuple):
    """Position of a picture of size ``picture`` on a canvas of size ``canvas``."""

    picture: tuple[int, int]
    resized: tuple[int, int]
    canvas: tuple[int, int]
    origin: tuple[int, int] = (0, 0)

    @classmethod
    def identity(cls, size: tuple[int, int]) -> Placement:
        """Return the placement of a canvas that equals the picture, as for a tensor sent directly."""
        return cls(picture=size, resized=size, canvas=size)

    @property
    def covered(self) -> tuple[int, int, int, int]:
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
        scale = np.divide(self.picture, self.resized)
        moved = (boxes.reshape(-1, 2, 2) + np.asarray(self.origin)) * scale
        clipped: NDArray[np.floating] = np.clip(moved, 0, np.asarray(self.picture, np.float64)).reshape(-1, 4)
        return clipped

    @property
    def _axes(self) -> Iterator[tuple[int, int, int]]:
        return zip(self.resized, self.origin, self.canvas, strict=True)


def place(picture: tuple[int, int], canvas: tuple[int, int], config: PreprocessConfig) -> Placement:
    """Return the placement by the model's resize rule.

    crop resizes as torchvision's Resize(size / crop_fraction) followed by CenterCrop(size) does, letterbox as the YOLO
    family does: centred, the odd pixel to the right and below.
    """
    if config.resize == "crop":
        return _crop(picture, canvas, config.crop_fraction)
    if config.resize == "letterbox":
        return _letterbox(picture, canvas)
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


def _letterbox(picture: tuple[int, int], canvas: tuple[int, int]) -> Placement:
    ratio = min(canvas[0] / picture[0], canvas[1] / picture[1])
    resized = (max(1, round(picture[0] * ratio)), max(1, round(picture[1] * ratio)))
    origin = (-((canvas[0] - resized[0]) // 2), -((canvas[1] - resized[1]) // 2))
    return Placement(picture=picture, resized=resized, canvas=canvas, origin=origin)
