"""Class maps: from a network's map to the class of every pixel of the picture sent.

A network's map covers the whole canvas at any resolution. Scores are interpolated bilinearly to the picture (half-pixel
centres, as torch.nn.functional.interpolate with align_corners=False) and then compared, for smooth edges. Indices use
the nearest neighbour. Pixels outside the canvas are NOTHING.
"""

from __future__ import annotations

import math
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from app.images.placement import Placement

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
