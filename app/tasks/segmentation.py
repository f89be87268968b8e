"""segmentation: a class for every pixel of the picture sent -> the areas of the classes, and a coloured mask.

List and mask agree: a class that is too small for the list is not in the mask either.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from app.config import SegmentationConfig
from app.errors import ConfigError
from app.images.drawing import blend
from app.images.palette import Color, generated, parsed
from app.images.placement import Placement
from app.images.png import decode_png, encode_png, from_text, to_text
from app.memory.budget import charged, check
from app.tasks.class_maps import MAX_CLASSES, NOTHING, ClassMap, areas, classes_of_indices, classes_of_scores
from app.tasks.classification import activate
from app.tasks.masks import encode_mask
from app.tasks.task import Outputs, Prediction, TaskContext, overlay, rounded

_BACKGROUND: Final = "background"
_USUAL_THRESHOLD: Final = 0.5
# Bytes a pixel of the picture sent takes while it is decided: scores and indices, of the best so far and of one class.
_PIXEL: Final = 16


class SegmentationTask:
    """Reads one output: scores (N, classes, H, W), or class indices (N, H, W).

    One channel of scores is two classes: 1 where its probability reaches the threshold, else 0. A single label is that
    of class 1.
    """

    PARAMETERS: ClassVar[tuple[str, ...]] = ("threshold", "min_area")

    def __init__(self, context: TaskContext) -> None:
        self._context = context
        self._config = context.config.segmentation
        name = self._config.output or context.signature.output_names[0]
        self._output = context.check_output("segmentation.output", name)
        self._colors = [parsed(color) for color in self._config.colors or ()]

    def options(self, parameters: Mapping[str, Any]) -> SegmentationConfig:
        """threshold and min_area."""
        return overlay(self._config, parameters, self.PARAMETERS)

    def predict(
        self, outputs: Outputs, placements: Sequence[Placement], options: SegmentationConfig
    ) -> Sequence[Prediction]:
        """Of each item the classes, largest first, and the mask with its width and height."""
        maps = self._maps(outputs)
        if len(placements) != len(maps):
            raise ConfigError(f"the outputs are of {len(maps)} items, expected {len(placements)}")
        context, background = self._labelled(maps.shape), self._background(maps.shape, options)
        found = []
        for item, placement in zip(maps, placements, strict=True):
            check()
            with charged(_PIXEL * math.prod(placement.picture) + 2 * item.nbytes):
                class_map, classes = _classify(item, placement, options, context.labels)
                class_map = _without_small(class_map, classes, background, options.min_area)
                found.append(self._finding(class_map, classes, background, context))
        return found

    def draw(self, finding: Prediction, picture: Callable[[], Image.Image]) -> bytes:
        """The mask, half transparent on the picture."""
        return encode_png(blend(picture(), decode_png(from_text(finding["mask"]))))

    def _maps(self, outputs: Outputs) -> NDArray[Any]:
        """(N, channels, H, W) of scores or (N, H, W) of indices."""
        values = outputs[self._output]
        if values.ndim not in (3, 4) or 0 in values.shape[1:] or values.dtype.kind == "c":
            raise ConfigError(
                f"output '{self._output}': found {list(values.shape)} {values.dtype.name}, expected scores"
                " (N, classes, H, W) or class indices (N, H, W)"
            )
        if values.ndim == 4 and values.shape[1] == 1 and values.dtype.kind in "iu":
            return values[:, 0]
        return values[:, None] if values.ndim == 3 and values.dtype.kind == "b" else values

    def _labelled(self, shape: tuple[int, ...]) -> TaskContext:
        """The context with labels for all classes; indices do not say how many there are."""
        context = self._context
        if len(shape) == 3:
            return context
        if shape[1] == 1 and context.labels is not None and len(context.labels) == 1:
            context = replace(context, labels=(_BACKGROUND, *context.labels))
        context.check_labels(max(2, shape[1]))
        return context

    def _background(self, shape: tuple[int, ...], options: SegmentationConfig) -> int:
        if isinstance(options.background, int):
            return options.background
        first = self._context.labels[0] if self._context.labels else ""
        has_one = len(shape) == 4 and shape[1] == 1 or first.strip("_ ").lower() == _BACKGROUND
        return 0 if options.background == "auto" and has_one else NOTHING

    def _color(self, index: int) -> Color:
        return self._colors[index % len(self._colors)] if self._colors else generated(index)

    def _finding(self, class_map: ClassMap, classes: int, background: int, context: TaskContext) -> Prediction:
        counts = areas(class_map, classes)
        order = [int(index) for index in np.argsort(-counts, kind="stable") if counts[index] and index != background]
        mask = encode_mask(class_map, [self._color(index) for index in range(classes)], background)
        return {
            "classes": [
                {
                    "label": context.label(index),
                    "index": index,
                    "area": int(counts[index]),
                    "fraction": rounded(int(counts[index]) / class_map.size),
                    "color": "#{:02x}{:02x}{:02x}".format(*self._color(index)),
                }
                for index in order
            ],
            "mask": to_text(mask),
            "width": class_map.shape[1],
            "height": class_map.shape[0],
        }


def _classify(
    item: NDArray[Any], placement: Placement, options: SegmentationConfig, labels: Sequence[str] | None
) -> tuple[ClassMap, int]:
    """The map of the picture, and how many classes there are."""
    if item.ndim == 2:
        class_map = classes_of_indices(item, placement, MAX_CLASSES if labels is None else len(labels))
        return class_map, int(class_map.max(initial=0)) + 1 if labels is None else len(labels)
    if len(item) > MAX_CLASSES:
        raise ConfigError(f"segmentation: found {len(item)} classes, expected at most {MAX_CLASSES}")
    class_map = classes_of_scores(*_comparable(item, options), placement)
    # Of one channel NOTHING is class 0, and what is at least likely enough is class 1.
    return (class_map - NOTHING, 2) if len(item) == 1 else (class_map, len(item))


def _comparable(item: NDArray[Any], options: SegmentationConfig) -> tuple[NDArray[Any], float]:
    """Scores (channels, H, W) that may be compared, and the least that counts.

    Where a class is its best score, no probabilities are needed; and logits are interpolated better than they are.
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


def _without_small(class_map: ClassMap, classes: int, background: int, least: int) -> ClassMap:
    """Pixels of small classes, and those of none, become background."""
    kept = np.arange(NOTHING, classes, dtype=np.int16)
    target = background if background < classes else NOTHING
    kept[0] = target
    if least:
        kept[1:][areas(class_map, classes) < least] = target
    return kept[class_map - NOTHING]
