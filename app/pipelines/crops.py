"""Crops of pictures at boxes and at polygons, made when a model takes them and kept no longer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from app.images.decode import Mode, check_pixels
from app.images.decoded import RGB_BYTES, PictureSource, Pixels

_WHITE: Final = (255, 255, 255)
# A crop at a polygon that is so many times as tall as wide is a line of text from top to bottom.
_TALL: Final = 1.5
_TURNS: Final = {
    90: Image.Transpose.ROTATE_90, 180: Image.Transpose.ROTATE_180, 270: Image.Transpose.ROTATE_270,
}  # fmt: skip


class Crop:
    """Part of a picture: at a box, or at a polygon of four points that becomes upright.

    Args:
        source: the picture.
        box: left, top, right and bottom in its pixels.
        size: width and height of the crop, before it is turned.
        warp: None for a box; else the projection from the crop to the picture, as Pillow takes it.
        turn: degrees by which the crop is turned counter-clockwise: 0, 90, 180 or 270.
    """

    __slots__ = ("_box", "_size", "_source", "_turn", "_warp", "label")

    def __init__(
        self,
        source: Pixels,
        box: tuple[int, int, int, int],
        size: tuple[int, int],
        warp: tuple[float, ...] | None,
        turn: int,
        label: str,
    ) -> None:
        self._source, self._box, self._size, self._warp, self._turn = source, box, size, warp, turn
        self.label = label

    @property
    def size(self) -> tuple[int, int]:
        """Return (width, height)."""
        return self._size[::-1] if self._turn in (90, 270) else self._size

    def open(self, *, max_pixels: int) -> Crop:
        """Return the crop itself.

        Raises:
            RequestTooLargeError: it has more pixels.
        """
        check_pixels(self.size, max_pixels, self.label)
        return self

    def cost(self, mode: Mode, at_least: tuple[float, float]) -> int:
        """Return the number of bytes that ``decode`` takes."""
        copies = 1 + bool(self._turn) + (mode != "RGB")
        return copies * RGB_BYTES * self._size[0] * self._size[1] + self._source.cost("RGB", self._source.size)

    def decode(self, mode: Mode, background: tuple[int, int, int], at_least: tuple[float, float]) -> Image.Image:
        """Return the pixels."""
        picture = self._source.decode("RGB", _WHITE, self._source.size)
        if self._warp is None:
            part = picture.crop(self._box)
        else:
            part = picture.transform(self._size, Image.Transform.PERSPECTIVE, self._warp, Image.Resampling.BICUBIC)
        if self._turn:
            part = part.transpose(_TURNS[self._turn])
        return part if mode == "RGB" else part.convert(mode)


def crop_box(picture: PictureSource, box: Sequence[float], margin: float, turn: int, label: str) -> Crop | None:
    """Return the crop at a box, clipped to the picture and widened to whole pixels; None if it is empty.

    Args:
        picture: the picture, decoded already.
        box: left, top, right and bottom.
        margin: share of width and height that is added on each side.
        turn: degrees counter-clockwise.
        label: name in messages.
    """
    opened = picture.open(max_pixels=_ANY)
    x0, y0, x1, y1 = box
    across, down = margin * (x1 - x0), margin * (y1 - y0)
    sides = (x0 - across, y0 - down, x1 + across, y1 + down)
    if not all(map(math.isfinite, sides)):
        return None
    (width, height) = opened.size
    left, top = max(0, math.floor(sides[0])), max(0, math.floor(sides[1]))
    right, bottom = min(width, math.ceil(sides[2])), min(height, math.ceil(sides[3]))
    if right <= left or bottom <= top or x1 <= x0 or y1 <= y0:
        return None
    return Crop(opened, (left, top, right, bottom), (right - left, bottom - top), None, turn, label)


def crop_polygon(
    picture: PictureSource, polygon: Sequence[Sequence[float]], margin: float, turn: int, label: str
) -> Crop | None:
    """Return the upright crop at a polygon, clipped to the picture; None if it is empty.

    Width and height are the longer ones of opposite sides. Pixels are as `rapidocr` maps them: the first point is the
    centre of the first pixel. A tall crop is turned to the left, as a line of text from top to bottom.

    Args:
        picture: the picture, decoded already.
        polygon: top left, top right, bottom right and bottom left.
        margin: share of width and height that is added on each side.
        turn: degrees counter-clockwise.
        label: name in messages.
    """
    opened = picture.open(max_pixels=_ANY)
    points = np.asarray(polygon, np.float64)
    if points.shape != (4, 2) or not np.isfinite(points).all():
        return None
    points = points.mean(axis=0) + (1 + 2 * margin) * (points - points.mean(axis=0))
    points = np.clip(points, 0, np.subtract(opened.size, 1))
    sides = np.linalg.norm(points - np.roll(points, -1, axis=0), axis=1)
    size = int(max(sides[0], sides[2])), int(max(sides[1], sides[3]))
    if min(size) < 1 or _area(points) < 1:
        return None
    left, top = (int(side) for side in points[0])
    box = (left, top, left + size[0], top + size[1])
    warp = None if _is_box(points, box) else _warp(points, size)
    if size[1] / size[0] >= _TALL:
        turn = (turn + 90) % 360
    return Crop(opened, box, size, warp, turn, label)


def _area(points: NDArray[np.float64]) -> float:
    (x, y), (following_x, following_y) = points.T, np.roll(points, -1, axis=0).T
    return abs(float((x * following_y - y * following_x).sum())) / 2


def _is_box(points: NDArray[np.float64], box: tuple[int, int, int, int]) -> bool:
    """Return whether a polygon is a box of whole pixels, as most lines of text are; no pixel is resampled then."""
    x0, y0, x1, y1 = box
    return bool((points == ((x0, y0), (x1, y0), (x1, y1), (x0, y1))).all())


def _warp(points: NDArray[np.float64], size: tuple[int, int]) -> tuple[float, ...]:
    """Return the projection of a crop's corners to four points.

    Pillow adds half a pixel to positions in the crop and takes it from those in the picture.
    """
    width, height = size
    corners = np.array([(0, 0), (width, 0), (width, height), (0, height)], np.float64) + 0.5
    rows = []
    for (u, v), (x, y) in zip(corners, points + 0.5, strict=True):
        rows += [(u, v, 1, 0, 0, 0, -x * u, -x * v), (0, 0, 0, u, v, 1, -y * u, -y * v)]
    found: list[float] = np.linalg.lstsq(np.array(rows), (points + 0.5).ravel())[0].tolist()
    return tuple(found)


# Sizes of pictures were checked when they were decoded.
_ANY: Final = 1 << 62
