"""Polygons at a distance around rectangles, as the library Clipper, which DBNet's original uses, computes them.

Corners are truncated to whole pixels first. Round corners become arcs, at most a quarter of a pixel off, whose points
are rounded to whole pixels.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.tasks.images.detection.rectangles import Floats
from app.tasks.images.detection.regions import Ints

_TOLERANCE: Final = 0.25


def grown(rectangles: Floats, ratio: float) -> tuple[Ints, Ints]:
    """Return the number (n,) and x and y (n, 2) of all points around rectangles (n, 4, 2), given in order.

    The distance is area * ratio / perimeter.
    """
    sides = _to_next(rectangles)
    x, y = rectangles[..., 0], rectangles[..., 1]
    areas = np.abs((x * sides[..., 1] - y * sides[..., 0]).sum(axis=1)) / 2
    distances = areas * ratio / np.maximum(np.hypot(sides[..., 0], sides[..., 1]).sum(axis=1), 1e-9)
    corners = np.trunc(rectangles)
    sides = _to_next(corners)
    ends = np.arctan2(-sides[..., 0], sides[..., 1])  # angles of the normals, which point outwards
    turns = np.mod(ends - np.roll(ends, 1, axis=1) + np.pi, 2 * np.pi) - np.pi
    per_radian = _points_per_radian(distances)[:, None]
    counts = np.maximum((per_radian * np.abs(turns) + 0.5).astype(np.intp), 1) + 1
    arcs = np.repeat(np.arange(counts.size), counts.ravel())
    steps = np.arange(len(arcs)) - np.repeat(np.cumsum(counts) - counts.ravel(), counts.ravel())
    owner = arcs // 4
    angles = (ends - turns).ravel()[arcs] + (np.sign(turns) / per_radian).ravel()[arcs] * steps
    angles = np.where(steps == counts.ravel()[arcs] - 1, ends.ravel()[arcs], angles)
    around = np.stack([np.cos(angles), np.sin(angles)], axis=1) * distances[owner, None]
    points = corners.reshape(-1, 2)[arcs] + around
    return owner, np.trunc(points + np.copysign(0.5, points)).astype(np.intp)


def _to_next(polygons: NDArray[np.float64]) -> Floats:
    return np.roll(polygons, -1, axis=1) - polygons


def _points_per_radian(distances: Floats) -> Floats:
    tolerance = np.minimum(_TOLERANCE, distances * _TOLERANCE)
    with np.errstate(divide="ignore", invalid="ignore"):
        per_circle = np.minimum(np.pi / np.arccos(1 - tolerance / distances), distances * np.pi)
    return np.where(distances > 0, per_circle, 1.0) / (2 * np.pi)
