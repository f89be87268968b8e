"""Metrics of detection: non-maximum suppression and mean average precision.

Average precision is the area under the monotone precision-recall curve at every recall (PASCAL VOC since 2010). Each
true box is matched at most once, by the best score that overlaps it enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]


@dataclass(frozen=True, slots=True, kw_only=True)
class Boxes:
    """Boxes of one image: corners (n, 4), classes (n,), scores (n,), which are 1 for true boxes."""

    corners: Floats
    classes: npt.NDArray[np.int64]
    scores: Floats


def overlap(a: Floats, b: Floats) -> Floats:
    """Return the intersection over union of each of a (n, 4) with each of b (m, 4): (n, m)."""
    low, high = np.maximum(a[:, None, :2], b[:, :2]), np.minimum(a[:, None, 2:], b[:, 2:])
    shared = np.maximum(high - low, 0).prod(axis=2)
    areas = [(boxes[:, 2:] - boxes[:, :2]).prod(axis=1) for boxes in (a, b)]
    union: Floats = areas[0][:, None] + areas[1] - shared
    ratio: Floats = shared / np.maximum(union, 1e-9)
    return ratio


def decode(output: Floats, score_threshold: float, iou_threshold: float) -> Boxes:
    """Return the boxes of one image from YOLOv8's output (4 + classes, anchors), highest score first."""
    anchors = np.nonzero(output[4:].max(axis=0) >= score_threshold)[0]
    anchors = anchors[np.argsort(-output[4:, anchors].max(axis=0), kind="stable")]
    center, size = output[:2, anchors].T, output[2:4, anchors].T
    corners = np.concatenate([center - size / 2, center + size / 2], axis=1)
    classes = output[4:, anchors].argmax(axis=0)
    is_rival = (overlap(corners, corners) > iou_threshold) & (classes[:, None] == classes)
    kept: list[int] = []
    for index in range(len(anchors)):
        if not is_rival[index, kept].any():
            kept.append(index)
    return Boxes(corners=corners[kept], classes=classes[kept], scores=output[4:, anchors].max(axis=0)[kept])


def average_precisions(
    found: Sequence[Boxes], true: Sequence[Boxes], classes: Sequence[int], iou: float
) -> list[float]:
    """Return the average precision of each of these classes over all images, which have true boxes of it."""
    return [_average_precision(found, true, label, iou) for label in classes]


def precision_and_recall(found: Sequence[Boxes], true: Sequence[Boxes], iou: float) -> tuple[float, float]:
    """Return precision and recall over all classes."""
    labels = np.unique(np.concatenate([boxes.classes for boxes in true])).tolist()
    right = sum(int(_hits(a, b, label, iou).sum()) for a, b in zip(found, true, strict=True) for label in labels)
    counts = [sum(len(boxes.classes) for boxes in each) for each in (found, true)]
    return right / max(counts[0], 1), right / counts[1]


def _average_precision(found: Sequence[Boxes], true: Sequence[Boxes], label: int, iou: float) -> float:
    hits = [_hits(a, b, label, iou) for a, b in zip(found, true, strict=True)]
    scores = np.concatenate([boxes.scores[boxes.classes == label] for boxes in found])
    order = np.argsort(-scores, kind="stable")
    right = np.concatenate(hits)[order].cumsum()
    recall = right / sum(int((boxes.classes == label).sum()) for boxes in true)
    precision = right / np.arange(1, len(right) + 1)
    best_from_here = np.maximum.accumulate(precision[::-1])[::-1]
    return float((np.diff(recall, prepend=0) * best_from_here).sum())


def _hits(found: Boxes, true: Boxes, label: int, iou: float) -> npt.NDArray[np.bool_]:
    """Return which detections of a class, best first, match a true box for the first time."""
    corners = true.corners[true.classes == label]
    overlaps = overlap(found.corners[found.classes == label], corners)
    hits = np.zeros(len(overlaps), np.bool_)
    for index in range(len(overlaps) if len(corners) else 0):
        nearest = int(overlaps[index].argmax())
        hits[index] = overlaps[index, nearest] >= iou
        if hits[index]:
            overlaps[:, nearest] = 0
    return hits
