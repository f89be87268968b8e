"""Selection of boxes."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.cancellation import check_cancelled
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.onnx.operands.adapter import check_fits
from engine.layers.onnx.operands.constants import real_number
from engine.layers.operands.precision import INT64, widened
from engine.tensor import Array, TensorSpec


@register(
    "NonMaxSuppression",
    positional=("boxes", "scores", "max_output_boxes_per_class", "iou_threshold", "score_threshold"),
)
class NonMaxSuppression(Layer):
    """Boxes selected per class, best first; a box is dropped if a better selected one overlaps it too much.

    Suppression in the core is of one class of one image.

    Shapes:
        boxes (B, R, 4), scores (B, C, R)  ->  (K, 3) of (batch, class, box)
    Parameters:
        center_point_box: 0 for (y1, x1, y2, x2), any corners; 1 for (x, y, width, height).
    """

    center_point_box: int = 0

    def infer(self, boxes: TensorSpec, scores: Any, *limits: Any) -> TensorSpec:
        check_fits(boxes.rank == 3 and boxes.shape[2] in (None, 4), "boxes", boxes.shape, "[B, R, 4]")
        if isinstance(scores, TensorSpec):
            check_fits(scores.rank == 3, "scores", scores.shape, "[B, C, R]")
        return TensorSpec((None, 3), INT64)

    def forward(
        self,
        boxes: Array,
        scores: Any,
        max_output_boxes_per_class: Any = 0,
        iou_threshold: Any = 0.0,
        score_threshold: Any = None,
    ) -> Array:
        scores = scores if isinstance(scores, np.ndarray) else np.full((1, 1, 1), scores, boxes.dtype)
        fits = boxes.shape[0] == scores.shape[0] and boxes.shape[1] == scores.shape[2]
        check_fits(fits, "scores", scores.shape, f"[{boxes.shape[0]}, C, {boxes.shape[1]}]")
        most = int(real_number(max_output_boxes_per_class, 0, "max_output_boxes_per_class"))
        overlap = real_number(iou_threshold, 0.0, "iou_threshold")
        least = real_number(score_threshold, -np.inf, "score_threshold")
        found = [
            (batch, label, box)
            for batch in range(len(boxes))
            for label in range(scores.shape[1])
            for box in _selected(self._corners(boxes[batch]), widened(scores[batch, label]), most, overlap, least)
        ]
        return np.array(found, np.int64).reshape(-1, 3)

    def _corners(self, boxes: Array) -> Array:
        x = widened(boxes)
        if self.center_point_box:
            half = x[:, 2:] / 2
            return np.concatenate([x[:, :2] - half, x[:, :2] + half], axis=1)
        return np.concatenate([np.minimum(x[:, :2], x[:, 2:]), np.maximum(x[:, :2], x[:, 2:])], axis=1)


def _selected(boxes: Array, scores: Array, most: int, overlap: float, least: float) -> list[int]:
    """Return the selected boxes of one class, best first."""
    areas = np.maximum(boxes[:, 2:] - boxes[:, :2], 0).prod(axis=1)
    rest = np.argsort(-scores, kind="stable")
    rest = rest[scores[rest] > least]
    kept: list[int] = []
    with np.errstate(all="ignore"):
        while len(rest) and len(kept) < most:
            check_cancelled()
            best, rest = rest[0], rest[1:]
            kept.append(int(best))
            extents = np.minimum(boxes[best, 2:], boxes[rest, 2:]) - np.maximum(boxes[best, :2], boxes[rest, :2])
            shared = np.maximum(extents, 0).prod(axis=1)
            union = areas[best] + areas[rest] - shared
            rest = rest[~((shared > 0) & (shared / union > overlap))]
    return kept
