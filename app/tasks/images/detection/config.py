"""Table [detection] of config.toml, and the schema of the answer."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from app.schema import Body, ClassIndex, Fraction, Section


class DetectionConfig(Section):
    """Conversion of the network's outputs to boxes."""

    decoder: str = Field(
        default="scores_boxes",
        description="How the outputs are laid out: scores_boxes, yolov5, yolov8 or dbnet.",
    )
    output: str | None = Field(
        default=None,
        description="yolov5: (N, anchors, 5 + classes), yolov8: (N, 4 + classes, anchors), dbnet: (N, 1, H, W);"
        " default: the first output.",
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
        default=100, description="How many boxes at most, those with the highest scores; default for dbnet: 1000."
    )
    mask_threshold: Fraction = Field(default=0.3, description="dbnet: probability above which a pixel is text.")
    unclip_ratio: Annotated[float, Field(ge=0, le=10)] = Field(
        default=1.6, description="dbnet: how much regions grow: distance * perimeter = area * ratio."
    )
    dilation: bool = Field(default=True, description="dbnet: grow regions by a pixel before they are outlined.")


class BoxBody(Body):
    """Box found by a detection, [x0, y0, x1, y1] in pixels of the picture sent.

    A decoder for text adds the corners as [x, y]: top left, top right, bottom right, bottom left.
    """

    label: str
    score: float
    index: int
    box: list[float]
    polygon: list[list[float]] = []
