"""Decoder yolov8: boxes and class probabilities of anchors in one output, also with masks, key points or angles."""

from __future__ import annotations

import math

from app.tasks.images.detection.candidates import CandidateDecoder, Candidates, one_output, prototypes_of
from app.tasks.images.detection.config import DetectionConfig
from app.tasks.task import Outputs


class YoloV8(CandidateDecoder):
    """Output (N, 4 + classes + more, anchors) or (N, anchors, 4 + classes + more).

    What follows the classes are coefficients of masks, key points or the angle. The dimension of
    size 4 + number of labels + more holds the classes. Without labels, or if neither fits, the longer dimension holds
    the anchors; on a tie, the first form is assumed.
    """

    OUTPUTS = ("output", "prototypes")

    def decode(
        self, outputs: Outputs, config: DetectionConfig, labels: int | None, canvas: tuple[int, int]
    ) -> Candidates:
        """Bring the anchors first, and split the columns."""
        prototypes, points = prototypes_of(outputs, config), config.keypoints
        masks = 0 if prototypes is None else prototypes.shape[1]
        more = math.prod(points) if points is not None else int(config.rotated) or masks
        form = f"(N, 4 + classes{f' + {more}' if more else ''}, anchors)"
        found = one_output(outputs, config, form, least=1, axis=1)
        fitting = [axis for axis in (1, 2) if labels is not None and found.shape[axis] == 4 + labels + more]
        axis = fitting[0] if fitting else (2 if found.shape[2] < found.shape[1] else 1)
        rows = one_output(outputs, config, form, least=5 + more, axis=axis).swapaxes(axis, 2)
        classes = rows.shape[2] - more
        return Candidates(
            boxes=rows[..., :4],
            scores=rows[..., 4:classes],
            coefficients=None if prototypes is None else rows[..., classes:],
            prototypes=prototypes,
            keypoints=None if points is None else rows[..., classes:].reshape(*rows.shape[:2], *points),
            angles=rows[..., classes] if config.rotated else None,
        )
