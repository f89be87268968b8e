"""Task image: an output as a picture, without the padding around the picture sent.

pixel = (value * std + mean) * scale, rounded and clipped to 0..255: the inverse of [preprocess] with the same mean and
std and the inverse scale. The size is the network's; NaN becomes black.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pydantic import Field

from app.arrays import dtype_name
from app.errors import ConfigError
from app.images.drawing import encode_png, from_text, to_text
from app.images.placement import Placement
from app.memory.reservation import charge, charged
from app.schema import Body, Channels, Finite, Section
from app.tasks.task import DrawingTask, Outputs, Prediction, check_items

# One grey pixel as base64 PNG, for examples.
PIXEL: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg=="
_COLORS: Final = {1: ("grey",), 3: ("rgb", "bgr")}


class ImageConfig(Section):
    """Conversion of an output to a picture: pixel = (value * std + mean) * scale, per channel."""

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


class ImageBody(Body):
    """Picture made by a model, a PNG in base64."""

    image: str
    width: int
    height: int


class ImageTask(DrawingTask[ImageConfig]):
    """Picture from one output of shape (N, 3, H, W), (N, 1, H, W) or (N, H, W)."""

    NAME = "image"
    CONFIG = ImageConfig
    FINDING = ImageBody
    EXAMPLE = {"predictions": {"image": PIXEL, "width": 1, "height": 1}}

    def predict(self, outputs: Outputs, placements: Sequence[Placement], options: ImageConfig) -> Sequence[Prediction]:
        """Return each item's picture as base64 PNG, with width and height."""
        values = outputs[self._output]
        planes = values[:, None] if values.ndim == 3 else values
        if planes.ndim != 4 or planes.shape[1] not in _COLORS or 0 in planes.shape[2:] or planes.dtype.kind == "c":
            raise ConfigError(
                f"output '{self._output}': found {list(values.shape)} {dtype_name(values.dtype)},"
                " expected real numbers (N, 3 or 1, H, W)"
            )
        if options.color is not None and options.color not in _COLORS[planes.shape[1]]:
            raise ConfigError(f"image.color: found '{options.color}', but the output has {planes.shape[1]} channels")
        check_items(len(planes), placements)
        charge(2 * planes.size)  # PNG and its text
        with charged(3 * planes.nbytes):
            return self._predictions(planes, placements, options)

    def _predictions(
        self, planes: NDArray[Any], placements: Sequence[Placement], options: ImageConfig
    ) -> Sequence[Prediction]:
        return [
            _prediction(_pixels(item[:, *_covered(placement, item.shape[1:])], options))
            for item, placement in zip(planes, placements, strict=True)
        ]

    def draw(self, finding: Prediction, picture: Callable[[], Image.Image]) -> bytes:
        """Return the predicted picture."""
        return from_text(finding["image"])


def _prediction(pixels: NDArray[np.uint8]) -> Prediction:
    image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    return {"image": to_text(encode_png(image)), "width": image.width, "height": image.height}


def _covered(placement: Placement, size: tuple[int, ...]) -> tuple[slice, slice]:
    """Return rows and columns of the output that the picture covers; the output spans the canvas at any resolution."""
    x0, y0, x1, y1 = placement.covered
    (width, height), (rows, columns) = placement.canvas, size
    top, left = min(round(y0 * rows / height), rows - 1), min(round(x0 * columns / width), columns - 1)
    below, right = max(round(y1 * rows / height), top + 1), max(round(x1 * columns / width), left + 1)
    return slice(top, below), slice(left, right)


def _pixels(planes: NDArray[Any], config: ImageConfig) -> NDArray[np.uint8]:
    """Convert (C, H, W) of any dtype to (H, W, C) in RGB or grey."""
    channels = len(planes)
    for key, given in (("mean", config.mean), ("std", config.std)):
        if len(given) not in (1, channels):
            raise ConfigError(f"image.{key}: found {len(given)} values, expected 1 or {channels}")
    is_integer = planes.dtype.kind in "iu"
    scale = config.scale if config.scale is not None else (1.0 if is_integer else 255.0)
    gains, offsets = (np.broadcast_to(np.multiply(given, scale), (channels,)) for given in (config.std, config.mean))
    pixels = np.empty((*planes.shape[1:], channels), np.uint8)
    dtype = planes.dtype if planes.dtype == np.float64 or is_integer else np.float32
    for channel, plane in enumerate(planes):
        with np.errstate(all="ignore"):  # overflows are clipped to white
            values = plane.astype(dtype) * gains[channel] + offsets[channel]
        target = 2 - channel if config.color == "bgr" else channel
        pixels[..., target] = np.rint(np.clip(np.nan_to_num(values, nan=0.0, posinf=255, neginf=0), 0, 255))
    return pixels
