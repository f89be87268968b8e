"""Task segmentation: areas of the classes in the picture sent, and a coloured mask.

List and mask agree: a class too small for the list is not in the mask either.

A network's map covers the whole canvas at any resolution. Scores are interpolated bilinearly to the picture (half-pixel
centres, as torch.nn.functional.interpolate with align_corners=False) and then compared, for smooth edges. Indices use
the nearest neighbour. Pixels outside the canvas are NOTHING.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final, Literal, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pydantic import Field

from app.arrays import dtype_name
from app.errors import ConfigError
from app.images.drawing import blend, decode_png, encode_png, from_text, to_text
from app.images.palette import Color, generated, parsed
from app.images.placement import Placement
from app.memory.reservation import charged, check
from app.schema import Body, ClassIndex, Fraction, NotNegative, Section
from app.tasks.probabilities import activate
from app.tasks.task import DrawingTask, Outputs, Prediction, TaskContext, check_items, rounded

# (H, W) of class indices, or NOTHING.
ClassMap = NDArray[np.int16]
Scores = NDArray[np.float32]
Box = tuple[float, float, float, float]

NOTHING: Final = -1
MAX_CLASSES: Final = 2**15 - 1

# Replaces infinities, which would become NaN by interpolation.
_LARGE: Final = 1e30
# Scores interpolated for one picture, about a second of work; larger pictures are computed at a lower resolution.
_MAX_WORK: Final = 2**26
_CHUNK: Final = 2**20
HexColor = Annotated[str, Field(pattern="^#[0-9a-fA-F]{6}$")]
_USUAL_THRESHOLD: Final = 0.5
_BACKGROUND: Final = "background"
# One pixel of class 1 in its generated colour.
_MASK: Final = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABAQMAAAAl21bKAAAABlBMVEUAAAAA8ACx21hyAAAAAnRSTlMA/1uRIrUAAAAKSURBVHic"
    "Y2gAAACCAIF3zXK2AAAAAElFTkSuQmCC"
)
# Memory in bytes per pixel of the picture while classes are compared: scores and indices of best and current class.
_PIXEL: Final = 16
_MOST_WITH_PALETTE: Final = 255


def classes_of_scores(scores: NDArray[Any], least: float, placement: Placement) -> ClassMap:
    """Return the class of the best score of each pixel if it is at least ``least``, never for NaN.

    Args:
        scores: (classes, H, W).
        least: minimum score.
        placement: position of the picture on the canvas.
    """
    with np.errstate(all="ignore"):
        finite = np.nan_to_num(scores.astype(np.float32), nan=-_LARGE, posinf=_LARGE, neginf=-_LARGE)
    known = np.clip(finite, -_LARGE, _LARGE)
    picture = _blank(placement)
    part, box = _shown(picture, placement, known.shape[1:])
    if part.size:
        part[...] = _best(known, part.shape, box, max(least, -_LARGE / 10))
    return picture


def classes_of_indices(indices: NDArray[Any], placement: Placement, classes: int) -> ClassMap:
    """Return the nearest index for each pixel; NOTHING for NaN and values outside 0..classes-1.

    Args:
        indices: (H, W) of any real dtype.
        placement: position of the picture on the canvas.
        classes: number of classes.
    """
    with np.errstate(all="ignore"):
        known = np.where((indices >= 0) & (indices < classes), indices, np.int16(NOTHING)).astype(np.int16)
    picture = _blank(placement)
    part, (x0, y0, x1, y1) = _shown(picture, placement, known.shape)
    if part.size:
        part[...] = known[_nearest(y0, y1, part.shape[0], known.shape[0])][
            :, _nearest(x0, x1, part.shape[1], known.shape[1])
        ]
    return picture


def areas(class_map: ClassMap, classes: int) -> NDArray[np.int64]:
    """Return the number of pixels of each class, (classes,)."""
    counts = np.zeros(classes + 1, np.int64)
    for chunk in np.array_split(class_map.ravel(), math.ceil(class_map.size / _CHUNK)):
        counts += np.bincount(
            chunk - NOTHING, minlength=classes + 1
        )  # in chunks, because bincount takes eight bytes a pixel
    return counts[1:]


def without_small(class_map: ClassMap, classes: int, background: int, least: int) -> ClassMap:
    """Set pixels of small classes and of NOTHING to background."""
    kept = np.arange(NOTHING, classes, dtype=np.int16)
    target = background if background < classes else NOTHING
    kept[0] = target
    if least:
        kept[1:][areas(class_map, classes) < least] = target
    return kept[class_map - NOTHING]


def _blank(placement: Placement) -> ClassMap:
    return np.full(placement.picture[::-1], NOTHING, np.int16)


def _shown(picture: ClassMap, placement: Placement, size: tuple[int, ...]) -> tuple[ClassMap, Box]:
    """Return a view of the visible part of the picture, and its box on a map of the given size."""
    x0, y0, x1, y1 = placement.shown
    across, down = size[1] / placement.canvas[0], size[0] / placement.canvas[1]
    left, top, right, below = placement.on_canvas((x0, y0, x1, y1))
    return picture[y0:y1, x0:x1], (left * across, top * down, right * across, below * down)


def _best(scores: Scores, size: tuple[int, ...], box: Box, least: float) -> ClassMap:
    # Only classes that are best at some point of the network's map are compared; others rarely win in between.
    contenders = np.unique(scores.argmax(axis=0))
    limits = (scores.shape[2], scores.shape[1]) * 2  # Pillow refuses boxes half a pixel beyond
    inside = cast(Box, tuple(min(max(end, 0.0), float(limit)) for end, limit in zip(box, limits, strict=True)))
    shrink = min(1.0, math.sqrt(_MAX_WORK / (size[0] * size[1] * contenders.size)))
    height, width = (max(1, round(side * shrink)) for side in size)
    best = np.full((height, width), -np.inf, np.float32)
    found = np.full((height, width), NOTHING, np.int16)
    for index in contenders:
        image = Image.fromarray(scores[index])
        layer = np.asarray(image.resize((width, height), Image.Resampling.BILINEAR, box=inside))
        is_better = layer > best
        np.copyto(best, layer, where=is_better)
        np.copyto(found, index, where=is_better, casting="unsafe")
    found[best < least] = NOTHING
    if found.shape == size:
        return found
    return found[_nearest(0, height, size[0], height)][:, _nearest(0, width, size[1], width)]


def _nearest(start: float, end: float, count: int, size: int) -> NDArray[np.intp]:
    """Return the nearest of ``size`` pixels for the centres of ``count`` pixels spread over start..end."""
    middles = start + (np.arange(count) + 0.5) * ((end - start) / count)
    return np.clip(middles.astype(np.intp), 0, size - 1)


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
    colors: tuple[HexColor, ...] | None = Field(
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


class AreaBody(Body):
    """Class found by a segmentation; area in pixels of the picture sent, fraction of its area."""

    label: str
    index: int
    area: int
    fraction: float
    color: str


class MaskBody(Body):
    """Result of a segmentation: classes, largest first, and a mask, a PNG of the picture's size in base64."""

    classes: list[AreaBody]
    mask: str
    width: int
    height: int


class SegmentationTask(DrawingTask[SegmentationConfig]):
    """Segmentation from one output: scores (N, classes, H, W), or class indices (N, H, W).

    One channel of scores means two classes: 1 if the probability reaches the threshold, else 0. A single label is that
    of
    class 1.
    """

    NAME = "segmentation"
    CONFIG = SegmentationConfig
    PARAMETERS = {"threshold": "least probability of a class", "min_area": "least pixels of a class"}
    FINDING = MaskBody
    EXAMPLE = {
        "predictions": {
            "classes": [{"label": "road", "index": 1, "area": 1, "fraction": 1.0, "color": "#00f000"}],
            "mask": _MASK,
            "width": 1,
            "height": 1,
        }
    }

    def __init__(self, config: SegmentationConfig, context: TaskContext) -> None:
        super().__init__(config, context)
        self._colors = [parsed(color) for color in config.colors or ()]

    def predict(
        self, outputs: Outputs, placements: Sequence[Placement], options: SegmentationConfig
    ) -> Sequence[Prediction]:
        """Return for each item the classes, largest first, and the mask with its width and height."""
        maps = self._maps(outputs)
        check_items(len(maps), placements)
        context, background = self._labelled(maps.shape), self._background(maps.shape, options)
        found = []
        for item, placement in zip(maps, placements, strict=True):
            check()
            with charged(_PIXEL * math.prod(placement.picture) + 2 * item.nbytes):
                class_map, classes = classify(item, placement, options, context.labels)
                class_map = without_small(class_map, classes, background, options.min_area)
                found.append(self._finding(class_map, classes, background, context))
        return found

    def draw(self, finding: Prediction, picture: Callable[[], Image.Image]) -> bytes:
        """Return the picture with the mask blended over it."""
        return encode_png(blend(picture(), decode_png(from_text(finding["mask"]))))

    def _maps(self, outputs: Outputs) -> NDArray[Any]:
        """Return (N, channels, H, W) of scores or (N, H, W) of indices."""
        values = outputs[self._output]
        if values.ndim not in (3, 4) or 0 in values.shape[1:] or values.dtype.kind == "c":
            raise ConfigError(
                f"output '{self._output}': found {list(values.shape)} {dtype_name(values.dtype)}, expected scores"
                " (N, classes, H, W) or class indices (N, H, W)"
            )
        if values.ndim == 4 and values.shape[1] == 1 and values.dtype.kind in "iu":
            return values[:, 0]
        return values[:, None] if values.ndim == 3 and values.dtype.kind == "b" else values

    def _labelled(self, shape: tuple[int, ...]) -> TaskContext:
        """Return the context with labels for all classes, if the output tells their number."""
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


def encode_mask(class_map: ClassMap, colors: Sequence[Color], background: int = NOTHING) -> bytes:
    """Return the PNG of a class map.

    The palette index is the class; what is background or no class (255) is transparent. Where there are more than 255
    classes the picture has colours instead of a palette.
    """
    if len(colors) > _MOST_WITH_PALETTE:
        palette = _palette(colors, background, len(colors) + 1)
        return encode_png(Image.fromarray(palette[class_map]))  # NOTHING is the last colour
    palette = _palette(colors, background, _MOST_WITH_PALETTE + 1)
    image = Image.fromarray(class_map.astype(np.uint8))  # NOTHING becomes 255
    image.putpalette(palette[:, :3].tobytes(), "RGB")
    return encode_png(image, transparency=palette[:, 3].tobytes())


def _palette(colors: Sequence[Color], background: int, size: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    palette = np.zeros((size, 4), np.uint8)
    palette[: len(colors)] = [(*color, 255) for color in colors]
    if 0 <= background < len(colors):
        palette[background] = 0
    return palette
