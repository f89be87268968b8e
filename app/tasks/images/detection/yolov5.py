"""Decoder yolov5: box, objectness and class probabilities of anchors in one output, also with masks."""

from __future__ import annotations

from app.tasks.images.detection.candidates import CandidateDecoder, Candidates, one_output, prototypes_of
from app.tasks.images.detection.config import DetectionConfig
from app.tasks.task import Outputs


class YoloV5(CandidateDecoder):
    """Output (N, anchors, 5 + classes + masks).

    Class probabilities and coefficients of masks are still to be multiplied by the objectness.
    """

    OUTPUTS = ("output", "prototypes")

    def decode(
        self, outputs: Outputs, config: DetectionConfig, labels: int | None, canvas: tuple[int, int]
    ) -> Candidates:
        """Split the columns."""
        prototypes = prototypes_of(outputs, config)
        masks = 0 if prototypes is None else prototypes.shape[1]
        form = f"(N, anchors, 5 + classes{f' + {masks}' if masks else ''})"
        rows = one_output(outputs, config, form, least=6 + masks, axis=2)
        end = rows.shape[2] - masks
        return Candidates(
            boxes=rows[..., :4],
            objectness=rows[..., 4],
            scores=rows[..., 5:end],
            coefficients=None if prototypes is None else rows[..., end:] * rows[..., 4:5],
            prototypes=prototypes,
            of_probabilities=True,
        )
