"""[detection]: what a model's config.toml says of boxes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from app.schema import ClassIndex, Fraction, Section


class DetectionConfig(Section):
    """How the network's outputs become boxes."""

    decoder: str = Field(
        default="scores_boxes", description="How the outputs are laid out: scores_boxes, yolov5 or yolov8."
    )
    output: str | None = Field(
        default=None,
        description="yolov5: (N, anchors, 5 + classes), yolov8: (N, 4 + classes, anchors); default: the first output.",
    )
    scores: str = Field(default="out0", description="scores_boxes: output with the scores, (N, anchors, classes).")
    boxes: str = Field(default="out1", description="scores_boxes: output with the boxes, (N, anchors, 4).")
    box_format: Literal["xyxy", "cxcywh", "xywh"] | None = Field(
        default=None,
        description="The four numbers of a box; default: xyxy for scores_boxes, cxcywh for yolov5 and yolov8.",
    )
    normalized: bool | None = Field(
        default=None,
        description="Boxes in 0..1 of the network's input, else in its pixels; default: true for scores_boxes only.",
    )
    multi_label: bool | None = Field(
        default=None,
        description="An anchor may be found as several classes, else as its best; default: true for scores_boxes only.",
    )
    background: ClassIndex = Field(default="none", description="Index of a class that is nothing and never found.")
    score_threshold: Fraction = Field(default=0.5, description="Least score of what is found.")
    iou_threshold: Fraction = Field(
        default=0.5, description="Of two boxes of a class that overlap more, the better one stays."
    )
    max_detections: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=100, description="How many boxes at most, best first."
    )
