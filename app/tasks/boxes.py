"""Boxes as numpy arrays: formats, overlap, and non-maximum suppression. A box is x0 y0 x1 y1 unless said otherwise."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# A threshold of 0 lets every anchor through; the best of them decide all the same.
MAX_CANDIDATES: Final = 30_000


def to_corners(boxes: Floats, box_format: str) -> Floats:
    """Boxes (..., 4) of a format ("xyxy", "xywh", "cxcywh") as corners."""
    if box_format == "xyxy":
        return boxes
    first, size = boxes[..., :2], boxes[..., 2:]
    corner = first - size / 2 if box_format == "cxcywh" else first
    return np.concatenate([corner, corner + size], axis=-1)


def overlap(box: Floats, boxes: Floats) -> Floats:
    """Intersection over union of one box (4,) with boxes (n, 4); 0 where both are empty."""
    sides = np.minimum(box[2:], boxes[:, 2:]) - np.maximum(box[:2], boxes[:, :2])
    shared = np.prod(np.maximum(sides, 0), axis=1)
    union = _area(box) + _area(boxes) - shared
    ratio: Floats = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
    return ratio


def suppress(boxes: Floats, scores: Floats, classes: NDArray[np.intp], iou: float, limit: int) -> NDArray[np.intp]:
    """The indices of at most ``limit`` boxes, best first, none overlapping a better one of its class by more than iou.

    Greedy non-maximum suppression, as torchvision.ops.batched_nms.
    """
    left = np.argsort(-scores, kind="stable")[:MAX_CANDIDATES]
    kept: list[int] = []
    while left.size and len(kept) < limit:
        best, left = left[0], left[1:]
        kept.append(int(best))
        is_rival = classes[left] == classes[best]
        left = left[~(is_rival & (overlap(boxes[best], boxes[left]) > iou))]
    return np.array(kept, np.intp)


def _area(boxes: Floats) -> Floats:
    sides = np.maximum(boxes[..., 2:] - boxes[..., :2], 0)
    area: Floats = sides[..., 0] * sides[..., 1]
    return area
