"""Decoder yolov5: box, objectness and class probabilities of anchors in one output."""

from __future__ import annotations

from app.tasks.images.detection.candidates import CandidateDecoder, Candidates, one_output
from app.tasks.images.detection.config import DetectionConfig
from app.tasks.task import Outputs


class YoloV5(CandidateDecoder):
    """Output (N, anchors, 5 + classes); class probabilities are still to be multiplied by the objectness."""

    def decode(
        self, outputs: Outputs, config: DetectionConfig, labels: int | None, canvas: tuple[int, int]
    ) -> Candidates:
        """Split the columns."""
        rows = one_output(outputs, config, "(N, anchors, 5 + classes)", least=6, axis=2)
        return Candidates(boxes=rows[..., :4], objectness=rows[..., 4], scores=rows[..., 5:])
