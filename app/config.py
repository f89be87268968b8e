"""The schema of a model's config.toml. Every key is optional; a key that is not here is an error.

Defaults that depend on the model (the picture's size and colours) are None here and are settled when it is loaded.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.errors import ConfigError
from app.wording import did_you_mean

FILE_NAME: Final = "config.toml"

Positive = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Channels = Annotated[tuple[float, ...], Field(min_length=1, max_length=4)]
NonZero = Annotated[float, Field(gt=0)]


class Section(BaseModel):
    """Base of every table of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PreprocessConfig(Section):
    """How a picture becomes the network's input: value = (pixel * scale - mean) / std, per channel."""

    size: tuple[Positive, Positive] | None = None
    resize: Literal["stretch", "crop", "letterbox", "none"] = "stretch"
    crop_fraction: Annotated[float, Field(gt=0, le=1)] = 0.875
    fill: Annotated[int, Field(ge=0, le=255)] = 114
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos", "box"] = "bilinear"
    color: Literal["rgb", "bgr", "grey"] | None = None
    scale: float | None = None
    mean: Channels = (0.0,)
    std: Annotated[tuple[NonZero, ...], Field(min_length=1, max_length=4)] = (1.0,)
    layout: Literal["nchw", "nhwc"] = "nchw"
    alpha: str = "white"


class ClassificationConfig(Section):
    """How scores of classes become labels and probabilities."""

    output: str | None = None
    top_k: Positive = 5
    activation: Literal["softmax", "sigmoid", "none", "auto"] = "auto"


class DetectionConfig(Section):
    """How the network's outputs become boxes."""

    decoder: str = "scores_boxes"
    scores: str = "out0"
    boxes: str = "out1"
    box_format: Literal["xyxy", "cxcywh", "xywh"] = "xyxy"
    normalized: bool = True
    background: Annotated[int, Field(ge=0)] | Literal["none"] = "none"
    score_threshold: Fraction = 0.5
    iou_threshold: Fraction = 0.5
    max_detections: Positive = 100


class ModelConfig(Section):
    """The whole file."""

    task: str = "tensor"
    labels: str | tuple[str, ...] | None = None
    versions: Literal["latest", "all"] | tuple[Positive, ...] = "latest"
    threads: Positive | None = None
    preprocess: PreprocessConfig = PreprocessConfig()
    classification: ClassificationConfig = ClassificationConfig()
    detection: DetectionConfig = DetectionConfig()


def read_config(folder: Path) -> ModelConfig:
    """The folder's config.toml, or the defaults when there is none.

    Raises:
        ConfigError: naming the file, the key, what was found and what was expected.
    """
    path = folder / FILE_NAME
    try:
        return ModelConfig.model_validate(tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{FILE_NAME}: {exc}") from None
    except OSError as exc:
        raise ConfigError(f"{FILE_NAME}: {exc.strerror}") from None
    except ValidationError as exc:
        raise ConfigError(f"{FILE_NAME}: {'; '.join(_problems(exc))}") from None


def read_labels(folder: Path, labels: str | tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The labels of the classes, from the config itself or from the file beside it, one a line.

    Raises:
        ConfigError: when the file is missing, unreadable, empty or not beside config.toml.
    """
    if not isinstance(labels, str):
        return labels
    path = folder / labels
    if path.name != labels:
        raise ConfigError(f"{FILE_NAME}: labels: found '{labels}', expected the name of a file beside {FILE_NAME}")
    try:
        lines = path.read_text(encoding="utf-8").rstrip().splitlines()
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "not UTF-8"
        raise ConfigError(f"{FILE_NAME}: labels: cannot read '{labels}': {reason}") from None
    if not lines:
        raise ConfigError(f"{FILE_NAME}: labels: '{labels}' is empty")
    return tuple(line.strip() for line in lines)


def _problems(exc: ValidationError) -> list[str]:
    """One sentence per wrong key; of a value that could be several types only the first complaint."""
    problems: dict[str, str] = {}
    for error in exc.errors():
        is_key = error["type"] == "extra_forbidden"  # else the place may end in the name of a type that was tried
        keys = [str(part) for part in error["loc"] if is_key or isinstance(part, int) or part in _KEYS]
        problems.setdefault(".".join(keys), _sentence(error))
    return [f"{key}: {sentence}" for key, sentence in problems.items()]


def _sentence(error: Any) -> str:
    if error["type"] == "extra_forbidden":
        return f"unknown key{did_you_mean(str(error['loc'][-1]), _KEYS)}"
    message = str(error["msg"])
    return f"{message[0].lower()}{message[1:]}, found {error['input']!r}"


_SECTIONS: Final[tuple[type[Section], ...]] = (ModelConfig, PreprocessConfig, ClassificationConfig, DetectionConfig)
_KEYS: Final = {key for section in _SECTIONS for key in section.model_fields}
