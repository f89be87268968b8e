"""Table [detection] of config.toml, and the schema of the answer."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictBool

from app.schema import Body, ClassIndex, Fraction, Positive, Section


class DetectionConfig(Section):
    """Conversion of the network's outputs to boxes."""

    decoder: str = Field(
        default="scores_boxes",
        description="How the outputs are laid out: scores_boxes, yolov5, yolov8, yolov10, yolox, centernet, detr,"
        " rt_detr or dbnet.",
    )
    output: str | None = Field(
        default=None,
        description="yolov5: (N, anchors, 5 + classes), yolov8: (N, 4 + classes, anchors), yolov10: (N, boxes, 6),"
        " yolox: (N, cells, 5 + classes), dbnet: (N, 1, H, W); default: the first output.",
    )
    scores: str = Field(
        default="out0",
        description="Output with scores. scores_boxes, detr, rt_detr: (N, anchors, classes), centernet: (N, classes, H,"
        " W).",
    )
    boxes: str = Field(
        default="out1",
        description="Output with boxes. scores_boxes, detr, rt_detr: (N, anchors, 4), centernet: sizes (N, 2, H, W).",
    )
    offsets: str | None = Field(
        default=None, description="centernet: output with offsets of centres, (N, 2, H, W); default: none."
    )
    prototypes: str | None = Field(
        default=None,
        description="yolov5, yolov8, yolov10: output with prototypes of masks, (N, masks, H, W); default: no masks.",
    )
    keypoints: tuple[Positive, Annotated[int, Field(ge=2, le=3)]] | None = Field(
        default=None,
        description="yolov8, yolov10: number of key points and of values of each, such as [17, 3]; default: no key"
        " points.",
    )
    rotated: StrictBool = Field(default=False, description="yolov8, yolov10: boxes have an angle, the last column.")
    box_format: Literal["xyxy", "cxcywh", "xywh"] | None = Field(
        default=None,
        description="The four numbers of a box; default: xyxy for scores_boxes and yolov10, else cxcywh.",
    )
    normalized: bool | None = Field(
        default=None,
        description="Boxes in 0..1 of the network's input, else in its pixels; default: true for scores_boxes, detr and"
        " rt_detr.",
    )
    multi_label: bool | None = Field(
        default=None,
        description="An anchor may be found as several classes, else as its best; default: true for scores_boxes,"
        " rt_detr and centernet.",
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
    dilation: StrictBool = Field(default=True, description="dbnet: grow regions by a pixel before they are outlined.")


class ObjectBody(Body):
    """Object found by a detection, with its box [x0, y0, x1, y1] in pixels of the picture sent.

    Key points are [x, y] or [x, y, score]. A mask is a PNG in base64 that covers the whole pixels of the box, white
    inside.
    """

    label: str
    score: float
    index: int
    box: list[float]
    keypoints: list[list[float | None]] = []
    mask: str = ""


class BoxBody(ObjectBody):
    """Box found by a detection, as any decoder may return it.

    Text and rotated boxes have the corners as [x, y] too: top left, top right, bottom right, bottom left.
    """

    polygon: list[list[float]] = []
