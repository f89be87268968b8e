"""Task detection: boxes in pixels of the picture sent, with label and score, best first.

After decoding (detection_decoders.py) all families share threshold, mapping to the picture and non-maximum suppression.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from app.errors import ConfigError
from app.images.drawing import draw_boxes, encode_png
from app.images.placement import Placement
from app.messages import quoted
from app.schema import Body
from app.tasks.detection_decoders import DECODERS, Candidates, DetectionConfig
from app.tasks.task import DrawingTask, Outputs, Prediction, TaskContext, check_items, rounded

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


# Limit for a threshold of 0, which all candidates pass; only the best matter.
_MAX_CANDIDATES: Final = 30_000


class BoxBody(Body):
    """Box found by a detection, [x0, y0, x1, y1] in pixels of the picture sent."""

    label: str
    score: float
    index: int
    box: list[float]


class DetectionTask(DrawingTask[DetectionConfig]):
    """Object detection with the decoder named by the config."""

    NAME = "detection"
    CONFIG = DetectionConfig
    PARAMETERS = {
        "score_threshold": "least score",
        "iou_threshold": "most overlap of two boxes of a class",
        "max_detections": "how many boxes",
    }
    FINDING = list[BoxBody]
    EXAMPLE = {"predictions": [{"label": "face", "score": 0.98, "index": 1, "box": [177.8, 84.41, 271.77, 211.33]}]}

    def __init__(self, config: DetectionConfig, context: TaskContext) -> None:
        if config.decoder not in DECODERS:
            raise ConfigError(f"detection.decoder: found '{config.decoder}', expected {quoted(DECODERS)}")
        self._decoder = DECODERS[config.decoder]
        defaults = {key: getattr(self._decoder, key) for key in ("box_format", "normalized", "multi_label")}
        defaults["output"] = context.signature.output_names[0]
        missing = {key: value for key, value in defaults.items() if getattr(config, key) is None}
        super().__init__(config.model_copy(update=missing), context)
        named = {key: self._named_output(key, getattr(self._config, key)) for key in self._decoder.outputs}
        self._config = self._config.model_copy(update=named)

    def predict(
        self, outputs: Outputs, placements: Sequence[Placement], options: DetectionConfig
    ) -> list[list[Prediction]]:
        """Return the boxes of each item."""
        labels = self._context.labels
        found = self._decoder.decode(outputs, options, None if labels is None else len(labels))
        self._context.check_labels(found.scores.shape[2])
        check_items(len(found.boxes), placements)
        with np.errstate(all="ignore"):  # overflows to infinity are dropped below
            return [self._select(found, item, placement, options) for item, placement in enumerate(placements)]

    def draw(self, finding: Sequence[Prediction], picture: Callable[[], Image.Image]) -> bytes:
        """Return the picture with boxes, labels and scores."""
        return encode_png(draw_boxes(picture(), finding))

    def _select(self, found: Candidates, item: int, placement: Placement, options: DetectionConfig) -> list[Prediction]:
        objectness = None if found.objectness is None else found.objectness[item]
        anchors, classes, scores = passing(found.scores[item], objectness, options)
        boxes = to_corners(found.boxes[item][anchors].astype(np.float64), str(options.box_format))
        corners = boxes * (np.tile(placement.canvas, 2) if options.normalized else 1.0)
        inside = placement.to_picture(corners)
        real = np.isfinite(corners).all(axis=1) & (inside[:, 2] > inside[:, 0]) & (inside[:, 3] > inside[:, 1])
        corners, inside, classes, scores = corners[real], inside[real], classes[real], scores[real]
        kept = suppress(corners, scores, classes, options.iou_threshold, options.max_detections)
        return [
            {
                "label": self._context.label(int(classes[index])),
                "score": rounded(float(scores[index])),
                "index": int(classes[index]),
                "box": [round(float(side), 2) for side in inside[index]],
            }
            for index in kept
        ]


def passing(
    scores: NDArray[Any], objectness: NDArray[Any] | None, options: DetectionConfig
) -> tuple[NDArray[np.intp], NDArray[np.intp], Floats]:
    """Return anchor, class and score of all finite scores that reach the threshold, best first.

    Args:
        scores: (anchors, classes).
        objectness: (anchors,), a factor of at most 1, so that the classes of most anchors can be skipped.
        options: config of the task.
    """
    anchors = np.arange(len(scores))
    if objectness is not None:
        anchors = np.flatnonzero(objectness >= options.score_threshold)
        scores = scores[anchors] * objectness[anchors, None]
    passes = (scores >= options.score_threshold) & (scores < np.inf)
    if options.background != "none":
        passes[:, options.background : options.background + 1] = False
    if options.multi_label:
        rows, classes = np.nonzero(passes)
    else:
        rows = np.flatnonzero(passes.any(axis=1))
        classes = np.where(passes[rows], scores[rows], -np.inf).argmax(axis=1)
    values = scores[rows, classes].astype(np.float64)
    best = np.argsort(-values, kind="stable")[:_MAX_CANDIDATES]
    return anchors[rows[best]], classes[best], values[best]
