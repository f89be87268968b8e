"""detection: a network's boxes -> box in pixels of the picture sent, label, score, best first.

A decoder turns outputs into boxes on the network's canvas and a score for every class; what follows is the same for
all: threshold, suppression of overlapping boxes, and the way back from the canvas to the picture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from app.config import DetectionConfig
from app.errors import ConfigError
from app.images.placement import Placement
from app.tasks.boxes import Floats, suppress, to_corners
from app.tasks.task import Outputs, Prediction, TaskContext, overlay, rounded
from app.wording import quoted


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """What a decoder finds: boxes (N, anchors, 4) as corners, in 0..1 of the canvas or its pixels, and scores
    (N, anchors, classes)."""

    boxes: Floats
    scores: Floats


def scores_and_boxes(outputs: Outputs, config: DetectionConfig) -> Candidates:
    """One output of scores (N, anchors, classes) and one of boxes (N, anchors, 4): SSD and its family."""
    scores, boxes = outputs[config.scores], outputs[config.boxes]
    if scores.ndim != 3 or boxes.shape != (*scores.shape[:2], 4):
        raise ConfigError(
            f"outputs '{config.scores}' and '{config.boxes}': found shapes {list(scores.shape)} and"
            f" {list(boxes.shape)}, expected (N, anchors, classes) and (N, anchors, 4)"
        )
    return Candidates(boxes=to_corners(boxes.astype(np.float64), config.box_format), scores=scores.astype(np.float64))


# How outputs are read -> the config keys that name the outputs it reads, and the function.
DECODERS: Final[dict[str, tuple[tuple[str, ...], Callable[[Outputs, DetectionConfig], Candidates]]]] = {
    "scores_boxes": (("scores", "boxes"), scores_and_boxes),
}


class DetectionTask:
    """Finds objects; the decoder is named by the config."""

    PARAMETERS: ClassVar[tuple[str, ...]] = ("score_threshold", "iou_threshold", "max_detections")

    def __init__(self, context: TaskContext) -> None:
        self._context = context
        self._config = context.config.detection
        if self._config.decoder not in DECODERS:
            raise ConfigError(f"detection.decoder: found '{self._config.decoder}', expected {quoted(DECODERS)}")
        keys, self._decode = DECODERS[self._config.decoder]
        for key in keys:
            context.check_output(f"detection.{key}", getattr(self._config, key))

    def options(self, parameters: Mapping[str, Any]) -> DetectionConfig:
        """score_threshold, iou_threshold and max_detections."""
        return overlay(self._config, parameters, self.PARAMETERS)

    def predict(
        self, outputs: Outputs, placements: Sequence[Placement], options: DetectionConfig
    ) -> list[list[Prediction]]:
        """The boxes of each item."""
        found = self._decode(outputs, options)
        self._context.check_labels(found.scores.shape[2])
        if len(placements) != len(found.boxes):
            raise ConfigError(f"the outputs are of {len(found.boxes)} items, expected {len(placements)}")
        return [
            self._select(boxes, scores, placement, options)
            for boxes, scores, placement in zip(found.boxes, found.scores, placements, strict=True)
        ]

    def _select(
        self, boxes: Floats, scores: Floats, placement: Placement, options: DetectionConfig
    ) -> list[Prediction]:
        passing = scores >= options.score_threshold  # false for NaN
        if options.background != "none" and options.background < scores.shape[1]:
            passing[:, options.background] = False
        anchors, classes = np.nonzero(passing)
        corners = boxes[anchors] * (np.tile(placement.canvas, 2) if options.normalized else 1.0)
        inside = placement.to_picture(corners)
        real = np.isfinite(corners).all(axis=1) & (inside[:, 2] > inside[:, 0]) & (inside[:, 3] > inside[:, 1])
        corners, inside, anchors, classes = corners[real], inside[real], anchors[real], classes[real]
        kept = suppress(corners, scores[anchors, classes], classes, options.iou_threshold, options.max_detections)
        return [
            {
                "label": self._context.label(int(classes[index])),
                "score": rounded(float(scores[anchors[index], classes[index]])),
                "index": int(classes[index]),
                "box": [round(float(side), 2) for side in inside[index]],
            }
            for index in kept
        ]
