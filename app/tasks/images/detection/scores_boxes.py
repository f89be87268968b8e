"""Decoder scores_boxes: scores and boxes in two outputs, as SSD networks have them."""

from __future__ import annotations

from app.errors import ConfigError
from app.tasks.images.detection.candidates import CandidateDecoder, Candidates
from app.tasks.images.detection.config import DetectionConfig
from app.tasks.task import Outputs


class ScoresBoxes(CandidateDecoder):
    """Scores (N, anchors, classes) and boxes (N, anchors, 4)."""

    OUTPUTS = ("scores", "boxes")
    BOX_FORMAT = "xyxy"
    NORMALIZED = True
    MULTI_LABEL = True

    def decode(self, outputs: Outputs, config: DetectionConfig, labels: int | None) -> Candidates:
        """Take both outputs as they are."""
        scores, boxes = outputs[config.scores], outputs[config.boxes]
        if scores.ndim != 3 or not scores.shape[2] or boxes.shape != (*scores.shape[:2], 4):
            raise ConfigError(
                f"outputs '{config.scores}' and '{config.boxes}': found shapes {list(scores.shape)} and"
                f" {list(boxes.shape)}, expected (N, anchors, classes) and (N, anchors, 4)"
            )
        return Candidates(boxes=boxes, scores=scores)
