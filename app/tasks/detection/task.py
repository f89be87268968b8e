"""Task detection: boxes in pixels of the picture sent, with label and score, best first.

After decoding (decoders.py) all families share threshold, mapping from canvas to picture, and non-maximum suppression.
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
from app.tasks.detection.boxes import Floats, suppress, to_corners
from app.tasks.detection.decoders import DECODERS, Candidates, DetectionConfig
from app.tasks.task import DrawingTask, Outputs, Prediction, TaskContext, check_items, rounded

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
