"""Non-maximum suppression."""

from __future__ import annotations

import numpy as np

from engine.cancellation import check_cancelled
from engine.errors import ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.operands.axes import may_equal
from engine.layers.operands.precision import widened
from engine.layers.operands.spatial import FLOATING, Operand, tensor
from engine.layers.vision.grid import check_same_dtype
from engine.tensor import Array, TensorSpec, format_shape


@register(
    "pnnx.custom_op.torchvision.nms",
    positional=("dets", "scores", "iou_threshold"),
    renamed={"arg_0": "dets", "arg_1": "scores", "arg_2": "iou_threshold"},
)
class NonMaximumSuppression(Layer):
    """Indices of the kept boxes, best first: a box is dropped if a better kept one overlaps it too much.

    Shapes:
        dets (R, 4) of (x1, y1, x2, y2), scores (R,)  ->  (K,)
    Dtypes:
        floating, both the same; indices are int64. Equal scores keep their order.
    Raises:
        ShapeError: when the numbers of scores and boxes differ.
    Source:
        torchvision.ops.nms; torchvision/csrc/ops/cpu/nms_kernel.cpp.
    """

    loops = True

    iou_threshold: float

    def infer(self, dets: Operand, scores: Operand) -> object:
        boxes, values = tensor(dets, "dets", FLOATING), tensor(scores, "scores", FLOATING)
        check_same_dtype(boxes, values, "scores")
        if boxes.rank != 2 or not may_equal(boxes.shape[1], 4):
            raise ShapeError("detections are not rows of 4", found=format_shape(boxes.shape), expected="[?, 4]")
        if values.rank != 1 or not may_equal(values.shape[0], boxes.shape[0]):
            expected = format_shape(boxes.shape[:1])
            raise ShapeError(
                "the numbers of scores and boxes differ", found=format_shape(values.shape), expected=expected
            )
        return TensorSpec((None,), np.dtype(np.int64))

    def forward(self, dets: Array, scores: Array) -> Array:
        boxes = widened(dets)
        with np.errstate(all="ignore"):
            areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
            rest = np.argsort(-widened(scores), kind="stable")
            kept = []
            while len(rest):
                check_cancelled()
                best, rest = rest[0], rest[1:]
                kept.append(best)
                shared = _intersections(boxes[best], boxes[rest])
                overlap = shared / (areas[best] + areas[rest] - shared)
                rest = rest[~(overlap > self.iou_threshold)]
        return np.array(kept, np.int64)


def _intersections(box: Array, others: Array) -> Array:
    """Return the areas of the intersections of a box with others."""
    extents = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    areas: Array = np.maximum(extents, 0).prod(axis=1)
    return areas
