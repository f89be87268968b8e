"""Task detection: boxes in pixels of the picture sent, with label and score, best first.

After decoding all families share threshold, mapping to the picture and non-maximum suppression.

A decoder only takes views of the outputs; threshold and coordinates are handled alike for all decoders afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pydantic import Field

from app.errors import ConfigError
from app.images.drawing import draw_boxes, encode_png
from app.images.placement import Placement
from app.messages import quoted
from app.schema import Body, ClassIndex, Fraction, Section
from app.tasks.task import DrawingTask, Outputs, Prediction, TaskContext, check_items, rounded


class DetectionConfig(Section):
    """Conversion of the network's outputs to boxes."""

    decoder: str = Field(
        default="scores_boxes", description="How the outputs are laid out: scores_boxes, yolov5 or yolov8."
    )
    output: str | None = Field(
        default=None,
        description="yolov5: (N, anchors, 5 + classes), yolov8: (N, 4 + classes, anchors); default: the first output.",
    )
    scores: str = Field(default="out0", description="scores_boxes: output with the scores, (N, anchors, classes).")
    boxes: str = Field(default="out1", description="scores_boxes: output with the boxes, (N, anchors, 4).")
    box_format: Literal["xyxy", "cxcywh", "xywh"] | None = Field(
        default=None,
        description="The four numbers of a box; default: xyxy for scores_boxes, cxcywh for yolov5 and yolov8.",
    )
    normalized: bool | None = Field(
        default=None,
        description="Boxes in 0..1 of the network's input, else in its pixels; default: true for scores_boxes only.",
    )
    multi_label: bool | None = Field(
        default=None,
        description="An anchor may be found as several classes, else as its best; default: true for scores_boxes only.",
    )
    background: ClassIndex = Field(default="none", description="Index of a class that is nothing and never found.")
    score_threshold: Fraction = Field(default=0.5, description="Least score of what is found.")
    iou_threshold: Fraction = Field(
        default=0.5, description="Of two boxes of a class that overlap more, the better one stays."
    )
    max_detections: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=100, description="How many boxes at most, best first."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Boxes (N, anchors, 4) in the config's format, scores (N, anchors, classes), and objectness (N, anchors) or None.

    Scores are still to be multiplied with objectness.
    """

    boxes: NDArray[Any]
    scores: NDArray[Any]
    objectness: NDArray[Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """Output layout of one detector family.

    Args:
        decode: takes the outputs, the config and the number of labels, or None.
        outputs: config keys that name the outputs it reads.
        box_format, normalized, multi_label: defaults of these keys.
    """

    decode: Callable[[Outputs, DetectionConfig, int | None], Candidates]
    outputs: tuple[str, ...]
    box_format: str
    normalized: bool
    multi_label: bool


def scores_boxes(outputs: Outputs, config: DetectionConfig, labels: int | None) -> Candidates:
    """Take scores (N, anchors, classes) and boxes (N, anchors, 4) from two outputs, as SSD networks have them."""
    scores, boxes = outputs[config.scores], outputs[config.boxes]
    if scores.ndim != 3 or not scores.shape[2] or boxes.shape != (*scores.shape[:2], 4):
        raise ConfigError(
            f"outputs '{config.scores}' and '{config.boxes}': found shapes {list(scores.shape)} and"
            f" {list(boxes.shape)}, expected (N, anchors, classes) and (N, anchors, 4)"
        )
    return Candidates(boxes=boxes, scores=scores)


def yolov5(outputs: Outputs, config: DetectionConfig, labels: int | None) -> Candidates:
    """Take box, objectness and conditional class probabilities from one output (N, anchors, 5 + classes)."""
    rows = _one_output(outputs, config, "(N, anchors, 5 + classes)", least=6, axis=2)
    return Candidates(boxes=rows[..., :4], objectness=rows[..., 4], scores=rows[..., 5:])


def yolov8(outputs: Outputs, config: DetectionConfig, labels: int | None) -> Candidates:
    """Take boxes and class probabilities from one output (N, 4 + classes, anchors) or (N, anchors, 4 + classes).

    The dimension of size 4 + number of labels holds the classes. Without labels, or if neither fits, the longer
    dimension
    holds the anchors; on a tie, the first form is assumed.
    """
    form = "(N, 4 + classes, anchors)"
    found = _one_output(outputs, config, form, least=1, axis=1)
    fitting = [axis for axis in (1, 2) if labels is not None and found.shape[axis] == 4 + labels]
    axis = fitting[0] if fitting else (2 if found.shape[2] < found.shape[1] else 1)
    rows = _one_output(outputs, config, form, least=5, axis=axis).swapaxes(axis, 2)
    return Candidates(boxes=rows[..., :4], scores=rows[..., 4:])


def _one_output(outputs: Outputs, config: DetectionConfig, form: str, *, least: int, axis: int) -> NDArray[Any]:
    found = outputs[str(config.output)]
    if found.ndim != 3 or found.shape[axis] < least:
        raise ConfigError(f"output '{config.output}': found shape {list(found.shape)}, expected {form}")
    return found


DECODERS: Final[dict[str, Decoder]] = {
    "scores_boxes": Decoder(
        decode=scores_boxes, outputs=("scores", "boxes"), box_format="xyxy", normalized=True, multi_label=True
    ),
    "yolov5": Decoder(decode=yolov5, outputs=("output",), box_format="cxcywh", normalized=False, multi_label=False),
    "yolov8": Decoder(decode=yolov8, outputs=("output",), box_format="cxcywh", normalized=False, multi_label=False),
}


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
