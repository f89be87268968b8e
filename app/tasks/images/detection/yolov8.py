"""Decoder yolov8: boxes and class probabilities of anchors in one output."""

from __future__ import annotations

from app.tasks.images.detection.candidates import CandidateDecoder, Candidates, one_output
from app.tasks.images.detection.config import DetectionConfig
from app.tasks.task import Outputs


class YoloV8(CandidateDecoder):
    """Output (N, 4 + classes, anchors) or (N, anchors, 4 + classes).

    The dimension of size 4 + number of labels holds the classes. Without labels, or if neither fits, the longer
    dimension holds the anchors; on a tie, the first form is assumed.
    """

    def decode(self, outputs: Outputs, config: DetectionConfig, labels: int | None) -> Candidates:
        """Bring the anchors first, and split the columns."""
        form = "(N, 4 + classes, anchors)"
        found = one_output(outputs, config, form, least=1, axis=1)
        fitting = [axis for axis in (1, 2) if labels is not None and found.shape[axis] == 4 + labels]
        axis = fitting[0] if fitting else (2 if found.shape[2] < found.shape[1] else 1)
        rows = one_output(outputs, config, form, least=5, axis=axis).swapaxes(axis, 2)
        return Candidates(boxes=rows[..., :4], scores=rows[..., 4:])
