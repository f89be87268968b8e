"""Decoder yolov10: boxes that the network has chosen itself, also with masks, key points or angles."""

from __future__ import annotations

import math

import numpy as np

from app.tasks.images.detection.candidates import CandidateDecoder, Candidates, one_output, prototypes_of
from app.tasks.images.detection.config import DetectionConfig
from app.tasks.task import Outputs


class YoloV10(CandidateDecoder):
    """Output (N, boxes, 6 + more): x0, y0, x1, y1, score, class, then coefficients of masks, key points or the angle.

    Rotated boxes are centre, width and height instead.
    """

    OUTPUTS = ("output", "prototypes")
    BOX_FORMAT = "xyxy"
    SUPPRESSES = False

    def decode(
        self, outputs: Outputs, config: DetectionConfig, labels: int | None, canvas: tuple[int, int]
    ) -> Candidates:
        """Split the columns."""
        prototypes, points = prototypes_of(outputs, config), config.keypoints
        masks = 0 if prototypes is None else prototypes.shape[1]
        more = math.prod(points) if points is not None else int(config.rotated) or masks
        rows = one_output(outputs, config, f"(N, boxes, 6{f' + {more}' if more else ''})", least=6 + more, axis=2)
        rest = rows[..., 6:]
        return Candidates(
            boxes=rows[..., :4],
            scores=rows[..., 4:5],
            classes=np.nan_to_num(rows[..., 5], nan=-1.0, posinf=-1.0),
            coefficients=None if prototypes is None else rest[..., :masks],
            prototypes=prototypes,
            keypoints=None if points is None else rest[..., :more].reshape(*rows.shape[:2], *points),
            angles=rest[..., 0] if config.rotated else None,
        )
