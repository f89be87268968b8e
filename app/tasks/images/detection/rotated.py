"""Rotated boxes, as networks for oriented boxes (OBB) have them: overlap, suppression and corners.

A box is (centre x, centre y, width, height, angle in radians clockwise).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.memory.reservation import check
from app.tasks.images.detection.boxes import Floats

# Boxes compared with all better ones at once.
_BLOCK: Final = 64
_LITTLE: Final = 1e-7
# Limit of the Bhattacharyya distance.
_MOST: Final = 100.0


def corners(boxes: Floats) -> Floats:
    """Return the corners (n, 4, 2) of boxes (n, 5), clockwise.

    The angle is first brought to a quarter turn, as Ultralytics does; then the first corner is at the top left.
    """
    angle = boxes[:, 4] % np.pi
    is_tall = angle >= np.pi / 2
    width, height = np.where(is_tall, boxes[:, [3, 2]].T, boxes[:, [2, 3]].T)
    angle = angle % (np.pi / 2)
    along = np.stack([width * np.cos(angle), width * np.sin(angle)], axis=1) / 2
    across = np.stack([-height * np.sin(angle), height * np.cos(angle)], axis=1) / 2
    centre = boxes[:, :2]
    return np.stack(
        [centre - along - across, centre + along - across, centre + along + across, centre - along + across], axis=1
    )


def suppress_rotated(
    boxes: Floats, scores: Floats, classes: NDArray[np.intp], iou: float, limit: int
) -> NDArray[np.intp]:
    """Return the indices of at most ``limit`` boxes, best first, that overlap no better one of their class.

    A box that is left out suppresses others too: "fast NMS" (arXiv 1904.02689), as Ultralytics has it for these boxes.

    Raises:
        DeadlineExceededError: the request was cancelled.
    """
    order, kept = np.argsort(-scores, kind="stable"), np.empty(0, np.intp)
    boxes, classes = boxes[order], classes[order]
    for start in range(0, order.size, _BLOCK):
        check()
        end = min(start + _BLOCK, order.size)
        rivals = classes[:end, None] == classes[start:end]
        rivals &= probabilistic_overlap(boxes[:end], boxes[start:end]) > iou
        rivals &= np.arange(end)[:, None] < np.arange(start, end)
        kept = np.concatenate([kept, start + np.flatnonzero(~rivals.any(axis=0))])
        if kept.size >= limit:
            break
    return order[kept[:limit]]


def probabilistic_overlap(one: Floats, other: Floats) -> Floats:
    """Return how much boxes (n, 5) and (m, 5) overlap as normal distributions, (n, m) (arXiv 2106.06072)."""
    x, y = (one[:, None, at] - other[:, at] for at in (0, 1))
    (a1, b1, c1), (a2, b2, c2) = (_covariance(each) for each in (one, other))
    a, b, c = a1[:, None] + a2, b1[:, None] + b2, c1[:, None] + c2
    determinant = a * b - c**2
    distance = ((a * y**2 + b * x**2) * 0.25 - c * x * y * 0.5) / (determinant + _LITTLE)
    own = np.maximum(a1 * b1 - c1**2, 0)[:, None] * np.maximum(a2 * b2 - c2**2, 0)
    distance += 0.5 * np.log(determinant / (4 * np.sqrt(own) + _LITTLE) + _LITTLE)
    return np.asarray(1 - np.sqrt(1 - np.exp(-np.clip(distance, _LITTLE, _MOST)) + _LITTLE))


def _covariance(boxes: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the covariance matrices [[a, c], [c, b]] of boxes."""
    a, b = boxes[:, 2] ** 2 / 12, boxes[:, 3] ** 2 / 12
    cos, sin = np.cos(boxes[:, 4]), np.sin(boxes[:, 4])
    return a * cos**2 + b * sin**2, a * sin**2 + b * cos**2, (a - b) * cos * sin
