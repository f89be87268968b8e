"""Class of each pixel: activation and threshold over score maps, or indices unchanged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from app.errors import ConfigError
from app.images.placement import Placement
from app.schema import ClassIndex, Fraction, NotNegative, Section
from app.tasks.activation import activate
from app.tasks.segmentation.class_maps import MAX_CLASSES, NOTHING, ClassMap, classes_of_indices, classes_of_scores

Color = Annotated[str, Field(pattern="^#[0-9a-fA-F]{6}$")]
_USUAL_THRESHOLD: Final = 0.5


class SegmentationConfig(Section):
    """Conversion of the network's outputs to a class for every pixel."""

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


def classify(
    item: NDArray[Any], placement: Placement, options: SegmentationConfig, labels: Sequence[str] | None
) -> tuple[ClassMap, int]:
    """Return the class map of the picture, and the number of classes."""
    if item.ndim == 2:
        class_map = classes_of_indices(item, placement, MAX_CLASSES if labels is None else len(labels))
        return class_map, int(class_map.max(initial=0)) + 1 if labels is None else len(labels)
    if len(item) > MAX_CLASSES:
        raise ConfigError(f"segmentation: found {len(item)} classes, expected at most {MAX_CLASSES}")
    class_map = classes_of_scores(*_comparable(item, options), placement)
    # With one channel, NOTHING becomes class 0 and pixels above the threshold class 1.
    return (class_map - NOTHING, 2) if len(item) == 1 else (class_map, len(item))


def _comparable(item: NDArray[Any], options: SegmentationConfig) -> tuple[NDArray[Any], float]:
    """Return comparable scores (channels, H, W) and the minimum score.

    Without a threshold logits are compared directly: probabilities are not needed, and logits interpolate better.
    """
    activation = options.activation
    if len(item) == 1 and activation == "softmax":
        raise ConfigError("segmentation.activation: found 'softmax', expected 'sigmoid' or 'none' for one channel")
    if len(item) == 1 and activation == "auto":
        activation = "sigmoid" if ((item < 0) | (item > 1)).any() else "none"
    has_threshold = len(item) == 1 or activation == "sigmoid"
    threshold = _USUAL_THRESHOLD if options.threshold is None and has_threshold else options.threshold
    if threshold is None:
        return item, -math.inf
    if activation == "sigmoid":
        return item, _logit(threshold)
    values = item.astype(np.float64)
    if activation == "none" or (activation == "auto" and _is_distribution(values)):
        return values, threshold
    return activate(values.reshape(len(item), -1).T, "softmax").T.reshape(item.shape), threshold


def _is_distribution(values: NDArray[np.float64]) -> bool:
    return bool((values >= 0).all() and (np.abs(values.sum(axis=0) - 1) < 1e-3).all())


def _logit(probability: float) -> float:
    if probability in (0, 1):
        return -math.inf if probability == 0 else math.inf
    return math.log(probability / (1 - probability))
