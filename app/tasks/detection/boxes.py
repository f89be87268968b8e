"""Boxes as numpy arrays: formats, overlap, and non-maximum suppression. A box is x0 y0 x1 y1 unless said otherwise."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Boxes compared at once: large enough for numpy to pay, small enough for the pairs of one block to stay in cache.
_BLOCK: Final = 512


def to_corners(boxes: Floats, box_format: str) -> Floats:
    """Boxes (..., 4) of a format ("xyxy", "xywh", "cxcywh") as corners."""
    if box_format == "xyxy":
        return boxes
    first, size = boxes[..., :2], boxes[..., 2:]
    corner = first - size / 2 if box_format == "cxcywh" else first
    return np.concatenate([corner, corner + size], axis=-1)


def overlap(box: Floats, boxes: Floats) -> Floats:
    """Intersection over union of boxes (..., 4) with others, broadcast as numpy does; 0 where both are empty."""
    right, below = (np.minimum(box[..., side], boxes[..., side]) for side in (2, 3))
    left, above = (np.maximum(box[..., side], boxes[..., side]) for side in (0, 1))
    shared = np.maximum(right - left, 0) * np.maximum(below - above, 0)
    union = _area(box) + _area(boxes) - shared
    ratio: Floats = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
    return ratio


def suppress(boxes: Floats, scores: Floats, classes: NDArray[np.intp], iou: float, limit: int) -> NDArray[np.intp]:
    """The indices of at most ``limit`` boxes, best first, none overlapping a better one of its class by more than iou.

    Greedy non-maximum suppression, as torchvision.ops.batched_nms, block by block until there are enough.
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
    """Which of the first (rows) and the second (columns) are of one class and overlap too much."""
    rivals: NDArray[np.bool_] = classes[first, None] == classes[second]
    rivals &= overlap(boxes[first, None], boxes[second]) > iou
    return rivals


def _unbeaten(rivals: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which of a block, best first, are rivals of no better one that is itself unbeaten."""
    left = np.ones(len(rivals), np.bool_)
    for index in range(len(rivals)):
        if left[index]:
            left[index + 1 :] &= ~rivals[index, index + 1 :]
    return left


def _area(boxes: Floats) -> Floats:
    sides = np.maximum(boxes[..., 2:] - boxes[..., :2], 0)
    area: Floats = sides[..., 0] * sides[..., 1]
    return area
