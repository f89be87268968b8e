"""Decoders of detector outputs: boxes, and the score of every class.

A decoder only takes views of the outputs; threshold and coordinates are handled alike for all decoders afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from numpy.typing import NDArray
from pydantic import Field

from app.errors import ConfigError
from app.schema import ClassIndex, Fraction, Section
from app.tasks.task import Outputs


class DetectionConfig(Section):
    """Conversion of the network's outputs to boxes."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Boxes (N, anchors, 4) in the config's format, scores (N, anchors, classes), and objectness (N, anchors) or None.

    Scores are still to be multiplied with objectness.
    """

    boxes: NDArray[Any]
    scores: NDArray[Any]
    objectness: NDArray[Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """Output layout of one detector family.

    Args:
        decode: takes the outputs, the config and the number of labels, or None.
        outputs: config keys that name the outputs it reads.
        box_format, normalized, multi_label: defaults of these keys.
    """

    decode: Callable[[Outputs, DetectionConfig, int | None], Candidates]
    outputs: tuple[str, ...]
    box_format: str
    normalized: bool
    multi_label: bool


def scores_boxes(outputs: Outputs, config: DetectionConfig, labels: int | None) -> Candidates:
    """Take scores (N, anchors, classes) and boxes (N, anchors, 4) from two outputs, as SSD networks have them."""
    scores, boxes = outputs[config.scores], outputs[config.boxes]
    if scores.ndim != 3 or not scores.shape[2] or boxes.shape != (*scores.shape[:2], 4):
        raise ConfigError(
            f"outputs '{config.scores}' and '{config.boxes}': found shapes {list(scores.shape)} and"
            f" {list(boxes.shape)}, expected (N, anchors, classes) and (N, anchors, 4)"
        )
    return Candidates(boxes=boxes, scores=scores)


def yolov5(outputs: Outputs, config: DetectionConfig, labels: int | None) -> Candidates:
    """Take box, objectness and conditional class probabilities from one output (N, anchors, 5 + classes)."""
    rows = _one_output(outputs, config, "(N, anchors, 5 + classes)", least=6, axis=2)
    return Candidates(boxes=rows[..., :4], objectness=rows[..., 4], scores=rows[..., 5:])


def yolov8(outputs: Outputs, config: DetectionConfig, labels: int | None) -> Candidates:
    """Take boxes and class probabilities from one output (N, 4 + classes, anchors) or (N, anchors, 4 + classes).

    The dimension of size 4 + number of labels holds the classes. Without labels, or if neither fits, the longer
    dimension
    holds the anchors; on a tie, the first form is assumed.
    """
    form = "(N, 4 + classes, anchors)"
    found = _one_output(outputs, config, form, least=1, axis=1)
    fitting = [axis for axis in (1, 2) if labels is not None and found.shape[axis] == 4 + labels]
    axis = fitting[0] if fitting else (2 if found.shape[2] < found.shape[1] else 1)
    rows = _one_output(outputs, config, form, least=5, axis=axis).swapaxes(axis, 2)
    return Candidates(boxes=rows[..., :4], scores=rows[..., 4:])


def _one_output(outputs: Outputs, config: DetectionConfig, form: str, *, least: int, axis: int) -> NDArray[Any]:
    found = outputs[str(config.output)]
    if found.ndim != 3 or found.shape[axis] < least:
        raise ConfigError(f"output '{config.output}': found shape {list(found.shape)}, expected {form}")
    return found


DECODERS: Final[dict[str, Decoder]] = {
    "scores_boxes": Decoder(
        decode=scores_boxes, outputs=("scores", "boxes"), box_format="xyxy", normalized=True, multi_label=True
    ),
    "yolov5": Decoder(decode=yolov5, outputs=("output",), box_format="cxcywh", normalized=False, multi_label=False),
    "yolov8": Decoder(decode=yolov8, outputs=("output",), box_format="cxcywh", normalized=False, multi_label=False),
}
