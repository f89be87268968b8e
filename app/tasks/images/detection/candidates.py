"""Candidates: boxes with class scores as a network gives them, and their selection."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from app.errors import ConfigError
from app.images.placement import Placement
from app.tasks.images.detection import rotated
from app.tasks.images.detection.boxes import Floats, suppress, to_corners
from app.tasks.images.detection.config import DetectionConfig
from app.tasks.images.detection.decoder import Decoder
from app.tasks.images.detection.keypoints import keypoints_on_picture
from app.tasks.images.detection.masks import encoded_masks
from app.tasks.task import Outputs, Prediction, TaskContext, check_items, rounded

# Limit for a threshold of 0, which all candidates pass; only the best matter.
_MAX_CANDIDATES: Final = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Boxes (N, anchors, 4) in the config's format, scores (N, anchors, classes), and objectness (N, anchors) or None.

    Scores are still to be multiplied with objectness.

    Attributes:
        coefficients, prototypes: (N, anchors, masks) and (N, masks, h, w), whose product has the masks; or None.
        of_probabilities: see ``encoded_masks``.
        keypoints: (N, anchors, points, 2 or 3), x, y and maybe a score, in pixels of the canvas; or None.
        classes: (N, anchors), the class of each anchor, which has one score; or None.
        angles: (N, anchors) of boxes in the format cxcywh, in radians; or None.
    """

    boxes: NDArray[Any]
    scores: NDArray[Any]
    objectness: NDArray[Any] | None = None
    coefficients: NDArray[Any] | None = None
    prototypes: NDArray[Any] | None = None
    of_probabilities: bool = False
    keypoints: NDArray[Any] | None = None
    classes: NDArray[Any] | None = None
    angles: NDArray[Any] | None = None


class CandidateDecoder(Decoder):
    """Decoder of outputs that hold boxes and class scores of anchors.

    Class attributes:
        BOX_FORMAT, NORMALIZED, MULTI_LABEL: defaults of the keys box_format, normalized and multi_label.
        SUPPRESSES: whether of overlapping boxes only the best is kept.
    """

    BOX_FORMAT = "cxcywh"
    NORMALIZED = False
    MULTI_LABEL = False
    SUPPRESSES = True

    def completed(self, config: DetectionConfig) -> DetectionConfig:
        """Return the config with the decoder's defaults."""
        defaults = {"box_format": self.BOX_FORMAT, "normalized": self.NORMALIZED, "multi_label": self.MULTI_LABEL}
        return config.model_copy(update={key: value for key, value in defaults.items() if getattr(config, key) is None})

    def predict(
        self, outputs: Outputs, placements: Sequence[Placement], config: DetectionConfig, context: TaskContext
    ) -> list[list[Prediction]]:
        """Return the boxes of each item, highest score first."""
        if not placements:
            return []
        with np.errstate(all="ignore"):  # overflows to infinity are dropped below
            labels = None if context.labels is None else len(context.labels)
            found = self.decode(outputs, config, labels, placements[0].canvas)
            if found.classes is None:
                context.check_labels(found.scores.shape[2])
            if found.prototypes is not None and len(found.prototypes) != len(found.boxes):
                raise ConfigError(
                    f"output '{config.prototypes}': found {len(found.prototypes)} items, expected {len(found.boxes)} as"
                    f" '{config.output}' has them"
                )
            check_items(len(found.boxes), placements)
            return [
                self._selected(found, item, placement, config, context) for item, placement in enumerate(placements)
            ]

    @abstractmethod
    def decode(
        self, outputs: Outputs, config: DetectionConfig, labels: int | None, canvas: tuple[int, int]
    ) -> Candidates:
        """Return the candidates of all items, as views of the outputs where possible.

        Args:
            outputs: outputs of the network by name.
            config: config of the task.
            labels: number of labels, or None.
            canvas: width and height of the network's input.

        Raises:
            ConfigError: an output does not have the shape that the decoder expects.
        """

    def _selected(
        self, found: Candidates, item: int, placement: Placement, config: DetectionConfig, context: TaskContext
    ) -> list[Prediction]:
        objectness = None if found.objectness is None else found.objectness[item]
        anchors, classes, scores = passing(found.scores[item], objectness, config)
        if found.classes is not None:
            classes = found.classes[item][anchors].astype(np.intp)
        boxes = found.boxes[item][anchors].astype(np.float64)
        boxes = boxes * (np.tile(placement.canvas, 2) if config.normalized else 1.0)
        if found.angles is None:
            polygons, corners = None, to_corners(boxes, str(config.box_format))
        else:
            boxes = np.column_stack([boxes, found.angles[item][anchors]])
            polygons = rotated.corners(boxes)
            corners = np.concatenate([polygons.min(axis=1), polygons.max(axis=1)], axis=1)
        inside = placement.to_picture(corners)
        real = np.flatnonzero(
            np.isfinite(corners).all(axis=1)
            & (inside[:, 2] > inside[:, 0])
            & (inside[:, 3] > inside[:, 1])
            & (classes >= 0)
        )
        if self.SUPPRESSES and polygons is not None:
            some = boxes[real], scores[real], classes[real]
            kept = real[rotated.suppress_rotated(*some, config.iou_threshold, config.max_detections)]
        elif self.SUPPRESSES:
            best = suppress(corners[real], scores[real], classes[real], config.iou_threshold, config.max_detections)
            kept = real[best]
        else:
            kept = real[: min(config.max_detections, len(found.boxes[item]))]
        anchors, inside, classes, scores = anchors[kept], inside[kept], classes[kept], scores[kept]
        rows: list[Prediction] = [
            {
                "label": context.label(index),
                "score": rounded(score),
                "index": index,
                "box": [round(side, 2) for side in box],
            }
            for index, score, box in zip(classes.tolist(), scores.tolist(), inside.tolist(), strict=True)
        ]
        extras = _extras(found, item, anchors, inside, placement)
        if polygons is not None:
            extras.append(("polygon", np.round(placement.points(polygons[kept]), 2).tolist()))
        for key, values in extras:
            for row, value in zip(rows, values, strict=True):
                row[key] = value
        return rows


def _extras(
    found: Candidates, item: int, anchors: NDArray[np.intp], boxes: NDArray[np.floating], placement: Placement
) -> list[tuple[str, list[Any]]]:
    """Return masks and key points of the chosen anchors, each with its key in a prediction."""
    extras: list[tuple[str, list[Any]]] = []
    if found.keypoints is not None:
        extras.append(("keypoints", keypoints_on_picture(found.keypoints[item][anchors], placement)))
    if found.coefficients is not None and found.prototypes is not None:
        weights, prototypes = found.coefficients[item][anchors], found.prototypes[item]
        masks = encoded_masks(weights, prototypes, boxes, placement, of_probabilities=found.of_probabilities)
        extras.append(("mask", masks))
    return extras


def prototypes_of(outputs: Outputs, config: DetectionConfig) -> NDArray[Any] | None:
    """Return the output with prototypes of masks, None if the config names none.

    Raises:
        ConfigError: it has another shape.
    """
    prototypes = None if config.prototypes is None else outputs[config.prototypes]
    if prototypes is not None and (prototypes.ndim != 4 or 0 in prototypes.shape[1:]):
        raise ConfigError(
            f"output '{config.prototypes}': found shape {list(prototypes.shape)}, expected (N, masks, H, W)"
        )
    return prototypes


def one_output(outputs: Outputs, config: DetectionConfig, form: str, *, least: int, axis: int) -> NDArray[Any]:
    """Return the output that the config names, of three dimensions.

    Raises:
        ConfigError: it has another shape, or fewer than ``least`` values along the axis.
    """
    found = outputs[str(config.output)]
    if found.ndim != 3 or found.shape[axis] < least:
        raise ConfigError(f"output '{config.output}': found shape {list(found.shape)}, expected {form}")
    return found


def scores_and_boxes(outputs: Outputs, config: DetectionConfig, *, least: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the outputs with scores (N, anchors, classes) and boxes (N, anchors, 4).

    Raises:
        ConfigError: they have other shapes, or fewer classes than ``least``.
    """
    scores, boxes = outputs[config.scores], outputs[config.boxes]
    if scores.ndim != 3 or scores.shape[2] < least or boxes.shape != (*scores.shape[:2], 4):
        raise ConfigError(
            f"outputs '{config.scores}' and '{config.boxes}': found shapes {list(scores.shape)} and"
            f" {list(boxes.shape)}, expected (N, anchors, classes) and (N, anchors, 4)"
        )
    return scores, boxes


def passing(
    scores: NDArray[Any], objectness: NDArray[Any] | None, config: DetectionConfig
) -> tuple[NDArray[np.intp], NDArray[np.intp], Floats]:
    """Return anchor, class and score of all finite scores that reach the threshold, best first.

    Args:
        scores: (anchors, classes).
        objectness: (anchors,), a factor of at most 1, so that the classes of most anchors can be skipped.
        config: config of the task.
    """
    anchors = np.arange(len(scores))
    if objectness is not None:
        anchors = np.flatnonzero(objectness >= config.score_threshold)
        scores = scores[anchors] * objectness[anchors, None]
    passes = (scores >= config.score_threshold) & (scores < np.inf)
    if config.background != "none":
        passes[:, config.background : config.background + 1] = False
    if config.multi_label:
        rows, classes = np.nonzero(passes)
    else:
        rows = np.flatnonzero(passes.any(axis=1))
        classes = np.where(passes[rows], scores[rows], -np.inf).argmax(axis=1)
    values = scores[rows, classes].astype(np.float64)
    best = np.argsort(-values, kind="stable")[:_MAX_CANDIDATES]
    return anchors[rows[best]], classes[best], values[best]
