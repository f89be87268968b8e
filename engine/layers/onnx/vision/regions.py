"""Pooling of image regions and selection of boxes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from engine.cancellation import cancellable, check_cancelled
from engine.errors import ParameterError, ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.onnx.operands.adapter import check_fits
from engine.layers.onnx.operands.constants import real_number
from engine.layers.onnx.operands.padding import Pair
from engine.layers.operands.precision import INT64, widened
from engine.layers.operands.spatial import FLOATING, tensor
from engine.tensor import Array, TensorSpec


@register(
    "NonMaxSuppression",
    positional=("boxes", "scores", "max_output_boxes_per_class", "iou_threshold", "score_threshold"),
)
class NonMaxSuppression(Layer):
    """Boxes selected per class, best first; a box is dropped if a better selected one overlaps it too much.

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
        self.infer(TensorSpec(boxes.shape, boxes.dtype), TensorSpec(scores.shape, scores.dtype))
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


@register("MaxRoiPool")
class MaxRoiPool(Layer):
    """Largest element of each bin of each region; the bins' borders are rounded, empty bins are zero.

    Shapes:
        input (N, C, H, W), rois (R, 5) of (batch, x1, y1, x2, y2)  ->  (R, C, *pooled_shape)
    """

    pooled_shape: tuple[int, ...]
    spatial_scale: float = 1.0

    def __post_init__(self) -> None:
        if len(self.pooled_shape) != 2 or min(self.pooled_shape) < 1:
            raise ParameterError("pooled_shape does not fit", found=list(self.pooled_shape), expected="two sizes")

    def infer(self, input: TensorSpec, rois: TensorSpec) -> TensorSpec:
        spec = tensor(input, "input", FLOATING)
        check_fits(spec.rank == 4, "input", spec.shape, "4 axes")
        check_fits(rois.rank == 2 and rois.shape[1] in (None, 5), "rois", rois.shape, "[?, 5]")
        return TensorSpec((rois.shape[0], spec.shape[1], *self.pooled_shape), spec.dtype)

    def forward(self, input: Array, rois: Array) -> Array:
        spec = self.infer(TensorSpec(input.shape, input.dtype), TensorSpec(rois.shape, rois.dtype))
        result = np.zeros(spec.sizes, input.dtype)
        for region, roi in cancellable(zip(result, rois, strict=True)):
            batch, left, top, right, bottom = roi
            if not math.isfinite(batch):
                raise ShapeError("the image index of a roi is out of range", found=f"image {batch}")
            image = int(batch)
            if not 0 <= image < len(input):
                raise ShapeError(
                    "the image index of a roi is out of range", found=f"image {image}", expected=f"below {len(input)}"
                )
            rows = self._bounds(top, bottom, self.pooled_shape[0], input.shape[2])
            columns = self._bounds(left, right, self.pooled_shape[1], input.shape[3])
            _fill(region, input[image], rows, columns)
        return result

    def _bounds(self, start: float, end: float, bins: int, size: int) -> list[Pair]:
        scale = np.float32(self.spatial_scale)
        first, last = (_rounded(float(np.nan_to_num(np.float32(each) * scale))) for each in (start, end))
        width = np.float32(max(last - first + 1, 1)) / np.float32(bins)
        index = np.arange(bins, dtype=np.float32)
        lows = np.clip(np.floor(index * width) + first, 0, size).astype(np.int64)
        highs = np.clip(np.ceil((index + 1) * width) + first, 0, size).astype(np.int64)
        return list(zip(lows.tolist(), highs.tolist(), strict=True))


def _rounded(place: float) -> int:
    """Return the nearest integer, halves away from zero."""
    return int(math.copysign(math.floor(abs(place) + 0.5), place))


def _fill(region: Array, image: Array, rows: list[Pair], columns: list[Pair]) -> None:
    """Fill the bins of one region, (C, PH, PW), row by row."""
    bounds = np.array(columns)
    is_empty = bounds[:, 1] <= bounds[:, 0]
    for i, (top, bottom) in enumerate(cancellable(rows)):
        if bottom > top:
            # One extra column, because the end of the last bin is the start of the next.
            line = np.pad(image[:, top:bottom].max(axis=1), ((0, 0), (0, 1)))
            region[:, i] = np.where(is_empty, 0, np.maximum.reduceat(line, bounds.reshape(-1), axis=1)[:, ::2])
