"""Key points of objects, such as the joints of a person."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.images.placement import Placement
from app.tasks.task import rounded


def keypoints_on_picture(keypoints: NDArray[Any], placement: Placement) -> list[list[list[float | None]]]:
    """Return [x, y] or [x, y, score] for each point of each object, in pixels of the picture, clipped to it.

    Values that are not finite are null.

    Args:
        keypoints: (objects, points, 2 or 3) in pixels of the canvas.
        placement: position of the picture on the canvas.
    """
    values = keypoints.astype(np.float64)
    values[..., :2] = np.clip(placement.points(values[..., :2]), 0, placement.picture)
    return [
        [
            [round(x, 2) if _is_finite(x) else None, round(y, 2) if _is_finite(y) else None, *map(_score, score)]
            for x, y, *score in points
        ]
        for points in values.tolist()
    ]


def _score(value: float) -> float | None:
    return rounded(value) if _is_finite(value) else None


def _is_finite(value: float) -> bool:
    return bool(np.isfinite(value))
