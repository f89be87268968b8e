"""Masks of objects: a weighted sum of prototypes for each object, as in YOLACT and YOLOv8-seg."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from app.images.drawing import encode_png, to_text
from app.images.placement import Placement
from app.memory.reservation import charge, charged, check
from app.tasks.images.detection.boxes import Floats

# Pixels of all masks of a picture; beyond, masks have a lower resolution.
_MOST_PIXELS: Final = 1 << 25


def encoded_masks(
    coefficients: NDArray[Any],
    prototypes: NDArray[Any],
    boxes: NDArray[np.floating],
    placement: Placement,
    *,
    of_probabilities: bool = False,
) -> list[str]:
    """Return the mask of each object as PNG in base64, white inside; it covers the whole pixels of the object's box.

    Args:
        coefficients: (objects, masks).
        prototypes: (masks, h, w), which span the canvas.
        boxes: (objects, 4), corners in pixels of the picture.
        placement: position of the picture on the canvas.
        of_probabilities: whether probabilities are interpolated between pixels of the prototypes, else logits.
    """
    answered = np.round(boxes, 2)  # clients know these
    outer = np.concatenate([np.floor(answered[:, :2]), np.ceil(answered[:, 2:])], axis=1).astype(np.intp)
    sides = np.maximum(outer[:, 2:] - outer[:, :2], 1)
    shrink = max(1.0, float(np.sqrt(sides.prod(axis=1).sum() / _MOST_PIXELS)))
    found = []
    planes = prototypes.astype(np.float32).reshape(len(prototypes), -1)
    for weights, corners, box, (width, height) in zip(
        coefficients.astype(np.float32), outer, boxes, sides.tolist(), strict=True
    ):
        check()
        size = max(1, int(width / shrink)), max(1, int(height / shrink))
        with charged(16 * size[0] * size[1] + 4 * planes.shape[1]):
            logits = (weights @ planes).reshape(prototypes.shape[1:])
            if of_probabilities:
                logits = np.tanh(logits / 2)  # 2 * sigmoid(logits) - 1
            xs, ys = (
                corners[axis] + (np.arange(size[axis]) + 0.5) * (sides_of / size[axis])
                for axis, sides_of in enumerate((width, height))
            )
            values = _sampled(logits, xs, ys, placement)
            inside = (values > 0) & _between(xs, box[0], box[2]) & _between(ys, box[1], box[3])[:, None]
            text = to_text(encode_png(Image.fromarray(inside.astype(np.uint8) * 255).convert("1")))
        charge(len(text))
        found.append(text)
    return found


def _between(centres: Floats, low: float, high: float) -> NDArray[np.bool_]:
    """Return which pixels have their corner in a range, given their centres."""
    found: NDArray[np.bool_] = (centres - 0.5 >= low) & (centres - 0.5 < high)
    return found


def _sampled(plane: NDArray[np.float32], xs: Floats, ys: Floats, placement: Placement) -> NDArray[Any]:
    """Return bilinear samples (rows, columns) of a plane that spans the canvas, at positions in the picture.

    Pixels of the plane beyond the picture are not used.
    """
    rows = _weights(ys, 1, plane.shape[0], placement)
    columns = _weights(xs, 0, plane.shape[1], placement)
    (first, second, share), (left, right, part) = rows, columns
    upper, lower = (plane[each][:, left] * (1 - part) + plane[each][:, right] * part for each in (first, second))
    mixed: NDArray[Any] = upper * (1 - share)[:, None] + lower * share[:, None]
    return mixed


def _weights(
    positions: Floats, axis: int, length: int, placement: Placement
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float32]]:
    """Return for each position the two nearest pixels of a plane along an axis, and the share of the second."""
    scale = length / placement.canvas[axis]
    on_canvas = positions * placement.resized[axis] / placement.picture[axis] - placement.origin[axis]
    start, end = placement.covered[axis] * scale, placement.covered[axis + 2] * scale
    low = min(max(round(start), 0), length - 1)
    high = min(max(round(end) - 1, low), length - 1)
    found = np.clip(on_canvas * scale - 0.5, low, high)
    first = np.floor(found).astype(np.intp)
    return first, np.minimum(first + 1, high), (found - first).astype(np.float32)
