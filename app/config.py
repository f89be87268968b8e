"""The schema of a model's config.toml. Every key is optional; a key that is not here is an error.

Defaults that depend on the model (the picture's size and colours) are None here and are settled when it is loaded.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from app.errors import ConfigError
from app.reading import read_text
from app.wording import brief, did_you_mean, told

FILE_NAME: Final = "config.toml"
# Names of a hundred thousand classes fit; reading it takes a second at most.
MAX_BYTES: Final = 2**20
MAX_VERSIONS: Final = 1000
_MAX_DOTS: Final = 32
# A string may lack its end: whatever begins one matches, so nothing is looked at twice.
_STRING: Final = re.compile(
    r'''"""[\s\S]*?(?:"""|\Z)|\'{3}[\s\S]*?(?:\'{3}|\Z)|"(?:[^"\\\n]|\\.)*"?|'[^'\n]*'?|#[^\n]*'''
)
_BETWEEN_KEYS: Final = re.compile(r"[=,\[\]{}\n]")
_MAX_PROBLEMS: Final = 10
_MAX_VALUE: Final = 100

Positive = Annotated[int, Field(ge=1)]
NotNegative = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Channels = Annotated[tuple[Finite, ...], Field(min_length=1, max_length=4)]
NonZero = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Color = Annotated[str, Field(pattern="^#[0-9a-fA-F]{6}$")]
ClassIndex = NotNegative | Literal["none"]


class Section(BaseModel):
    """Base of every table of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PreprocessConfig(Section):
    """How a picture becomes the network's input: value = (pixel * scale - mean) / std, per channel."""

    size: tuple[NotNegative, NotNegative] | None = Field(
        default=None,
        description="Height and width of the network's input; default: as the graph has them. letterbox: one may be 0,"
        " and follows from the other and the picture.",
    )
    resize: Literal["stretch", "crop", "letterbox", "none"] = Field(
        default="stretch",
        description="How a picture gets that size. none: it must have it; where size is open any picture will do.",
    )
    crop_fraction: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.875, description="crop: the shorter side becomes size / crop_fraction, then the middle is cut out."
    )
    fill: Annotated[int, Field(ge=0, le=255)] = Field(
        default=114, description="letterbox: pixel value around the picture."
    )
    multiple: Annotated[int, Field(ge=1, le=1024)] = Field(
        default=1,
        description="none, size open: height and width grow to a multiple of it, by repeating the last row and column;"
        " letterbox: what follows grows to one, by filling.",
    )
    max_pixels: Positive | None = Field(
        default=None, description="Largest picture this model takes, in pixels; default: the server's max_pixels."
    )
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos", "box"] = Field(
        default="bilinear", description="Pillow's filter for resizing."
    )
    color: Literal["rgb", "bgr", "grey"] | None = Field(
        default=None, description="Channels of the input; default: grey for one channel, rgb for three."
    )
    scale: Finite | None = Field(
        default=None, description="Factor of a pixel (0..255); default: 1/255, for uint8 inputs 1."
    )
    mean: Channels = Field(
        default=(0.0,), description="What is subtracted, after scale: one number, or one for each channel."
    )
    std: Annotated[tuple[NonZero, ...], Field(min_length=1, max_length=4)] = Field(
        default=(1.0,), description="What is divided by, after mean: one number, or one for each channel."
    )
    layout: Literal["nchw", "nhwc"] = Field(default="nchw", description="Order of the input's dimensions.")
    alpha: str = Field(default="white", description="Colour that transparent pictures are laid on: a name or #rrggbb.")

    @model_validator(mode="after")
    def _one_side_may_follow(self) -> Self:
        if self.size is not None and 0 in self.size and (self.resize != "letterbox" or self.size == (0, 0)):
            raise ValueError(f"size: found {list(self.size)}, expected a 0 with letterbox only, and only one")
        return self


class ClassificationConfig(Section):
    """How scores of classes become labels and probabilities."""

    output: str | None = Field(default=None, description="Output with the scores, (N, classes); default: the first.")
    top_k: Positive = Field(default=5, description="How many classes are told, best first.")
    activation: Literal["softmax", "sigmoid", "none", "auto"] = Field(
        default="auto",
        description="What makes scores probabilities; auto: none for rows that are a distribution, else softmax.",
    )


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


class SegmentationConfig(Section):
    """How the network's outputs become a class for every pixel of the picture."""

    output: str | None = Field(
        default=None,
        description="Output with scores (N, classes, H, W) or class indices (N, H, W); default: the first.",
    )
    activation: Literal["auto", "softmax", "sigmoid", "none"] = Field(
        default="auto",
        description="What makes scores probabilities; auto: softmax, for one channel sigmoid, none for what is one.",
    )
    threshold: Fraction | None = Field(
        default=None,
        description="Least probability of a class, else it is background; default: 0.5 for sigmoid and one channel.",
    )
    background: ClassIndex | Literal["auto"] = Field(
        default="auto",
        description="Class that is nothing: not listed, transparent in the mask; auto: 0 for one channel and where the"
        " first label is background, else none.",
    )
    colors: tuple[Color, ...] | None = Field(
        default=None,
        description='Colours of the classes as "#rrggbb", repeated if too few; default: a generated palette.',
    )
    min_area: NotNegative = Field(
        default=0, description="Classes with fewer pixels of the picture sent are left out of list and mask."
    )


class ImageConfig(Section):
    """How the network's output becomes a picture: pixel = (value * std + mean) * scale, per channel."""

    output: str | None = Field(
        default=None, description="Output with the picture, (N, 3 or 1, H, W); default: the first."
    )
    scale: Finite | None = Field(
        default=None, description="Factor that makes pixels (0..255); default: 255, for integers 1."
    )
    mean: Channels = Field(
        default=(0.0,), description="What is added before scale: one number, or one for each channel."
    )
    std: Channels = Field(
        default=(1.0,), description="What a value is multiplied with first: one number, or one a channel."
    )
    color: Literal["rgb", "bgr", "grey"] | None = Field(
        default=None, description="Channels of the output; default: grey for one channel, rgb for three."
    )


class ModelConfig(Section):
    """The whole file."""

    task: str = Field(
        default="tensor", description="What the model is for: tensor, classification, detection, segmentation or image."
    )
    labels: str | tuple[str, ...] | None = Field(
        default=None,
        description="Names of the classes: a list, or a UTF-8 file beside config.toml with one label a line.",
    )
    default: bool = Field(
        default=False, description="Whether requests that name no model mean this one, where the settings say nothing."
    )
    versions: Literal["latest", "all"] | Annotated[tuple[Positive, ...], Field(max_length=MAX_VERSIONS)] = Field(
        default="latest", description="Versions to serve."
    )
    threads: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        default=None, description="Cores one run may use; default, and at most, all that the server may use."
    )
    strict: bool | None = Field(
        default=None,
        description="Refuse the model when it contradicts its file or shows a loss; default: the server's strict.",
    )
    preprocess: PreprocessConfig = Field(default=PreprocessConfig(), description="How pictures become the input.")
    classification: ClassificationConfig = Field(default=ClassificationConfig(), description="For task classification.")
    detection: DetectionConfig = Field(default=DetectionConfig(), description="For task detection.")
    segmentation: SegmentationConfig = Field(default=SegmentationConfig(), description="For task segmentation.")
    image: ImageConfig = Field(default=ImageConfig(), description="For task image.")

    def is_strict(self, usual: bool) -> bool:
        """Whether contradictions between graph and file forbid serving it; usual: what the server's setting says."""
        return usual if self.strict is None else self.strict


def read_config(folder: Path) -> ModelConfig:
    """The folder's config.toml, or the defaults when there is none.

    Raises:
        ConfigError: naming the file, the key, what was found and what was expected.
    """
    try:
        return ModelConfig.model_validate(_parse(folder / FILE_NAME))
    except ConfigError as exc:
        raise ConfigError(f"{FILE_NAME}: {exc}") from None
    except ValidationError as exc:
        raise ConfigError(f"{FILE_NAME}: {'; '.join(_problems(exc))}") from None
    except RecursionError:
        raise ConfigError(f"{FILE_NAME}: nested too deeply") from None


def _parse(path: Path) -> dict[str, Any]:
    if not os.path.lexists(path):
        return {}
    text = read_text(path, MAX_BYTES)
    # The parser takes time in proportion to the square of a key's parts.
    if any(part.count(".") > _MAX_DOTS for part in _BETWEEN_KEYS.split(_STRING.sub("", text))):
        raise ConfigError("nested too deeply")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise ConfigError(told(str(exc))) from None
    except ValueError as exc:  # a number of more digits than Python reads
        raise ConfigError(f"found a value that cannot be read: {told(str(exc), _MAX_VALUE)}") from None


def _problems(exc: ValidationError) -> list[str]:
    """One sentence per wrong key; of a value that could be several types only the first complaint."""
    problems: dict[str, str] = {}
    for error in exc.errors(include_url=False, include_context=False):
        if len(problems) == _MAX_PROBLEMS:
            return [*_told(problems), f"and more: {exc.error_count()} in all"]
        is_key = error["type"] == "extra_forbidden"  # else the place may end in the name of a type that was tried
        keys = [str(part) for part in error["loc"] if is_key or isinstance(part, int) or part in _KEYS]
        problems.setdefault(".".join(keys), _sentence(error))
    return _told(problems)


def _told(problems: Mapping[str, str]) -> list[str]:
    return [f"{told(key, _MAX_VALUE)}: {sentence}" for key, sentence in problems.items()]


def _sentence(error: Any) -> str:
    if error["type"] == "extra_forbidden":
        return f"unknown key{did_you_mean(str(error['loc'][-1]), _KEYS)}"
    if error["type"] == "value_error":
        return str(error["msg"]).removeprefix("Value error, ")
    message = str(error["msg"])
    return f"{message[0].lower()}{message[1:]}, found {told(brief(error['input']))}"


_SECTIONS: Final[tuple[type[Section], ...]] = (
    *(ModelConfig, PreprocessConfig, ClassificationConfig),
    *(DetectionConfig, SegmentationConfig, ImageConfig),
)
_KEYS: Final = {key for section in _SECTIONS for key in section.model_fields}
