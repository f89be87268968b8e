"""Decoder scores_boxes: scores and boxes in two outputs, as SSD networks have them."""

from __future__ import annotations

from app.tasks.images.detection.candidates import CandidateDecoder, Candidates, scores_and_boxes
from app.tasks.images.detection.config import DetectionConfig
from app.tasks.task import Outputs


class ScoresBoxes(CandidateDecoder):
    """Scores (N, anchors, classes) and boxes (N, anchors, 4)."""

    OUTPUTS = ("scores", "boxes")
    BOX_FORMAT = "xyxy"
    NORMALIZED = True
    MULTI_LABEL = True

    def decode(
        self, outputs: Outputs, config: DetectionConfig, labels: int | None, canvas: tuple[int, int]
    ) -> Candidates:
        """Take both outputs as they are."""
        scores, boxes = scores_and_boxes(outputs, config, least=1)
        return Candidates(boxes=boxes, scores=scores)
