"""Decoder dbnet: text regions from a map of probabilities.

Source: Liao et al., "Real-time Scene Text Detection with Differentiable Binarization", 2020.

A region of probable pixels is a shrunk text. Its smallest rectangle is scored by the mean probability inside, then
grown by a distance that depends on its size, and rounded to pixels of the picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from app.errors import ConfigError
from app.images.placement import Placement
from app.memory.reservation import charged
from app.tasks.images.detection.config import DetectionConfig
from app.tasks.images.detection.decoder import Decoder
from app.tasks.images.detection.filling import mean_inside
from app.tasks.images.detection.offset import grown
from app.tasks.images.detection.rectangles import Floats, in_order, shorter_sides, smallest_rectangles
from app.tasks.images.detection.regions import hulls, outlines
from app.tasks.task import Outputs, Prediction, TaskContext, check_items, rounded

# Least sides in pixels: of a region, of the grown rectangle, and in the picture; as in PaddleOCR.
_LEAST_REGION: Final = 3
_LEAST_GROWN: Final = 5
_LEAST_SIDE: Final = 3
_MOST_REGIONS: Final = 1000
# Memory for outlines, for a pixel and for each change along a row: noise needs far more than text.
_BYTES_PER_PIXEL: Final = 6
_BYTES_PER_CHANGE: Final = 200
# Boxes are in one line if their tops are at most this many pixels apart from the next one's.
_LINE: Final = 10


class DBNet(Decoder):
    """Text in an output (N, 1, H, W) of probabilities, which spans the canvas at any resolution."""

    def completed(self, config: DetectionConfig) -> DetectionConfig:
        """Return the config with a limit that a page of text does not reach."""
        is_given = "max_detections" in config.model_fields_set
        return config if is_given else config.model_copy(update={"max_detections": _MOST_REGIONS})

    def predict(
        self, outputs: Outputs, placements: Sequence[Placement], config: DetectionConfig, context: TaskContext
    ) -> list[list[Prediction]]:
        """Return the texts of each item in reading order, at most ``max_detections`` with the highest scores."""
        maps = outputs[str(config.output)]
        if maps.ndim != 4 or maps.shape[1] != 1 or 0 in maps.shape[2:] or maps.dtype.kind not in "fV":
            raise ConfigError(
                f"output '{config.output}': found shape {list(maps.shape)}, expected probabilities (N, 1, H, W)"
            )
        context.check_labels(1)
        check_items(len(maps), placements)
        label = "text" if context.labels is None else context.label(0)
        found = [text_regions(each[0], placement, config) for each, placement in zip(maps, placements, strict=True)]
        return [
            [_prediction(label, polygon, score) for polygon, score in zip(polygons.tolist(), scores, strict=True)]
            for polygons, scores in found
        ]


def _prediction(label: str, polygon: list[list[int]], score: float) -> Prediction:
    xs, ys = zip(*polygon, strict=True)
    box = [min(xs), min(ys), max(xs), max(ys)]
    return {"label": label, "score": rounded(float(score)), "index": 0, "box": box, "polygon": polygon}


def text_regions(
    probabilities: NDArray[Any], placement: Placement, config: DetectionConfig
) -> tuple[NDArray[np.int32], Floats]:
    """Return quadrilaterals (n, 4, 2) in pixels of the picture, and their scores (n,), in reading order.

    Args:
        probabilities: (H, W); the map spans the canvas.
        placement: position of the picture on the canvas.
        config: config of the task.
    """
    values = probabilities.astype(np.float32)
    if not np.isfinite(values).all():
        values = np.where(np.isfinite(values), values, 0)
    mask = values > config.mask_threshold
    mask = _dilated(mask) if config.dilation else mask
    with charged(_BYTES_PER_PIXEL * mask.size + _BYTES_PER_CHANGE * int(np.count_nonzero(mask[:, 1:] != mask[:, :-1]))):
        regions = outlines(mask, _LEAST_REGION, _MOST_REGIONS)
    rectangles = in_order(smallest_rectangles(regions, from_top=True))
    rectangles = rectangles[shorter_sides(rectangles) >= _LEAST_REGION]
    scores = mean_inside(values, rectangles)
    best = np.argsort(-scores, kind="stable")[: config.max_detections]
    best = np.sort(best[scores[best] >= config.score_threshold])[::-1]  # the last outline first, as in OpenCV
    rectangles = in_order(smallest_rectangles(hulls(*grown(rectangles[best], config.unclip_ratio)), from_top=False))
    is_large = shorter_sides(rectangles) >= _LEAST_GROWN
    polygons = _on_picture(rectangles[is_large], values.shape, placement)
    is_visible = np.trunc(shorter_sides(polygons)) > _LEAST_SIDE
    polygons, scores = polygons[is_visible], scores[best][is_large][is_visible]
    order = _reading_order(polygons)
    return polygons[order], scores[order]


def _dilated(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    grown_mask = mask.copy()
    grown_mask[:, 1:] |= mask[:, :-1]
    grown_mask[1:] |= grown_mask[:-1].copy()
    return grown_mask


def _on_picture(rectangles: Floats, shape: tuple[int, ...], placement: Placement) -> NDArray[np.int32]:
    """Return rectangles of the map rounded to pixels of the picture, in order, clipped to its last pixel."""
    scale = np.divide(placement.canvas, (shape[1], shape[0]))
    moved = np.rint(placement.points((rectangles * scale).astype(np.float32)))
    last = np.subtract(placement.picture, 1)
    clipped: NDArray[np.int32] = np.clip(in_order(np.clip(moved, 0, placement.picture)), 0, last).astype(np.int32)
    return clipped


def _reading_order(polygons: NDArray[np.int32]) -> NDArray[np.intp]:
    """Return the order of polygons: lines from top to bottom, from left to right in each."""
    tops = np.argsort(polygons[:, 0, 1], kind="stable")
    lines = np.cumsum(np.diff(polygons[tops, 0, 1], prepend=0) >= _LINE)
    return tops[np.lexsort((polygons[tops, 0, 0], lines))]
