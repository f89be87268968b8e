"""Decoders detr and rt_detr: class logits and normalised boxes of queries, without non-maximum suppression."""

from __future__ import annotations

import numpy as np

from app.tasks.images.detection.candidates import CandidateDecoder, Candidates, scores_and_boxes
from app.tasks.images.detection.config import DetectionConfig
from app.tasks.probabilities import activate
from app.tasks.task import Outputs


class Detr(CandidateDecoder):
    """Logits (N, queries, classes + 1), of which the last one means no object, and boxes (N, queries, 4)."""

    OUTPUTS = ("scores", "boxes")
    NORMALIZED = True
    SUPPRESSES = False

    def decode(
        self, outputs: Outputs, config: DetectionConfig, labels: int | None, canvas: tuple[int, int]
    ) -> Candidates:
        """Convert logits to probabilities by softmax."""
        logits, boxes = scores_and_boxes(outputs, config, least=2)
        rows = logits.reshape(-1, logits.shape[2]).astype(np.float64)
        return Candidates(boxes=boxes, scores=activate(rows, "softmax").reshape(logits.shape)[..., :-1])


class RtDetr(CandidateDecoder):
    """Logits (N, queries, classes) and boxes (N, queries, 4); a query may be found as several classes.

    There are at most as many boxes as queries. RT-DETRv2, D-FINE and Deformable DETR have the same outputs.
    """

    OUTPUTS = ("scores", "boxes")
    NORMALIZED = True
    MULTI_LABEL = True
    SUPPRESSES = False

    def decode(
        self, outputs: Outputs, config: DetectionConfig, labels: int | None, canvas: tuple[int, int]
    ) -> Candidates:
        """Convert logits to probabilities by the sigmoid function."""
        logits, boxes = scores_and_boxes(outputs, config, least=1)
        return Candidates(boxes=boxes, scores=activate(logits.astype(np.float64), "sigmoid"))
