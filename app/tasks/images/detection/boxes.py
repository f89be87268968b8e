"""Boxes: formats, overlap and non-maximum suppression."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Boxes compared at once: enough to amortise numpy's calls, few enough for the pairs of a block to stay in cache.
_BLOCK: Final = 512


def to_corners(boxes: Floats, box_format: str) -> Floats:
    """Return boxes (..., 4) of a format ("xyxy", "xywh", "cxcywh") as corners."""
    if box_format == "xyxy":
        return boxes
    first, size = boxes[..., :2], boxes[..., 2:]
    corner = first - size / 2 if box_format == "cxcywh" else first
    return np.concatenate([corner, corner + size], axis=-1)


def overlap(box: Floats, boxes: Floats) -> Floats:
    """Return the intersection over union of broadcast boxes (..., 4); 0 if both are empty."""
    right, below = (np.minimum(box[..., side], boxes[..., side]) for side in (2, 3))
    left, above = (np.maximum(box[..., side], boxes[..., side]) for side in (0, 1))
    shared = np.maximum(right - left, 0) * np.maximum(below - above, 0)
    union = _area(box) + _area(boxes) - shared
    ratio: Floats = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
    return ratio


def suppress(boxes: Floats, scores: Floats, classes: NDArray[np.intp], iou: float, limit: int) -> NDArray[np.intp]:
    """Return the indices of at most ``limit`` boxes, best first, after non-maximum suppression within each class.

    Greedy, as torchvision.ops.batched_nms, but block by block until there are enough boxes.
    """
    order, kept = np.argsort(-scores, kind="stable"), np.empty(0, np.intp)
    for start in range(0, order.size, _BLOCK):
        block = order[start : start + _BLOCK]
        block = block[~_are_rivals(boxes, classes, block, kept, iou).any(axis=1)]
        kept = np.concatenate([kept, block[_unbeaten(_are_rivals(boxes, classes, block, block, iou))]])
        if kept.size >= limit:
            break
    return kept[:limit]


def _are_rivals(
    boxes: Floats, classes: NDArray[np.intp], first: NDArray[np.intp], second: NDArray[np.intp], iou: float
) -> NDArray[np.bool_]:
    """Return which of the first (rows) and second (columns) are of the same class and overlap by more than iou."""
    rivals: NDArray[np.bool_] = classes[first, None] == classes[second]
    rivals &= overlap(boxes[first, None], boxes[second]) > iou
    return rivals


def _unbeaten(rivals: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which boxes of a block, best first, are not suppressed by a better one that is kept."""
    left = np.ones(len(rivals), np.bool_)
    for index in range(len(rivals)):
        if left[index]:
            left[index + 1 :] &= ~rivals[index, index + 1 :]
    return left


def _area(boxes: Floats) -> Floats:
    sides = np.maximum(boxes[..., 2:] - boxes[..., :2], 0)
    area: Floats = sides[..., 0] * sides[..., 1]
    return area
