"""Conversion of pictures to the network's input as [preprocess] configures it.

Keys left out are derived once, at load, from the graph: size and colours from the input's shape, the scale from its
dtype. Every pixel is looked up in a table of 256 values per channel, computed in float64 and rounded once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import engine
from app.content import ContentRun, Converted
from app.errors import ConfigError, InputMismatchError, RequestTooLargeError
from app.images.config import (
    PreprocessConfig,
    background,
    completed,
    padding_values,
    pixel_values,
    takes_pictures,
)
from app.images.decode import SMALL_PIXELS, Mode, Picture, is_small, make_ready
from app.images.decoded import RGB_BYTES, PictureSource
from app.images.placement import Placement, following_canvas, limited_canvas, padded_size, place, rounded_up
from app.memory.reservation import charge, charged, check
from app.settings import Settings

_INTERPOLATION: Final = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
    "box": Image.Resampling.BOX,
}
# Intermediate pixels up to which the order of resizing does not matter.
_PLENTY: Final = 1 << 24
_FAR_MORE: Final = 4


class Preprocessor:
    """Conversion of pictures to the input of one model.

    Raises:
        ConfigError: the table contradicts the graph, or has no size, and that of the input is dynamic.
    """

    def __init__(self, port: engine.Port, config: PreprocessConfig, settings: Settings) -> None:
        self.port = port
        self.config = completed(port, config)
        self._settings = settings
        self._max_pixels = min(settings.max_pixels, config.max_pixels or settings.max_pixels)
        self._dtype = np.dtype(np.float32) if port.spec is None else port.spec.dtype
        self._mode: Mode = "L" if self.config.color == "grey" else "RGB"
        self._background = background(config.alpha)
        channels = 1 if self._mode == "L" else 3
        self._table = pixel_values(self.config, self._dtype, channels)
        self._padding = padding_values(self.config, self._dtype, channels)
        make_ready()

    def convert(self, pictures: Sequence[PictureSource], admit: Callable[[NDArray[Any]], None]) -> Converted:
        """Return one run for all pictures, decoded one after the other to hold only one; see ``Converter``."""
        if len(pictures) > self._settings.max_images:
            raise RequestTooLargeError(
                f"too many pictures: found {len(pictures)}, expected at most {self._settings.max_images}"
            )
        decode_s = 0.0
        canvas = self._widest(pictures) if self.config.follows else None
        batch: NDArray[Any] | None = None
        placements: list[Placement] = []
        for index, picture in enumerate(pictures):
            check()
            before = time.perf_counter()
            opened = picture.open(max_pixels=self._max_pixels)
            placement = place(opened.size, canvas or self._canvas(picture, opened.size), self.config)
            if batch is None:
                batch = self._empty(len(pictures), placement.canvas)
                admit(batch)
            elif placement.canvas != placements[0].canvas:
                raise _sizes_differ(picture, placement.canvas, placements[0].canvas)
            with charged(opened.cost(self._mode, placement.resized) + self._cost_of_fitting(opened.size, placement)):
                image = opened.decode(self._mode, self._background, placement.resized)
                decode_s += time.perf_counter() - before
                self._fill_in(batch[index], *self._fit(image, placement))
                del image, opened
            placements.append(placement)
        if batch is None:
            raise InputMismatchError(f"input '{self.port.name}': no picture was sent, expected at least one")
        run = ContentRun({self.port.name: batch}, tuple(placements), tuple(range(len(placements))))
        return Converted([run], decode_s)

    @property
    def has_fixed_size(self) -> bool:
        """Return True: pictures of another size than the usual share no runs by their shape."""
        return True

    def examples(self) -> list[ContentRun]:
        """Return none: zeros will do."""
        return []

    def is_light(self, pictures: Sequence[PictureSource]) -> bool:
        """Return whether preprocessing is cheap: one picture, small as encoded and as the network's input."""
        size = self.example_size
        if len(pictures) != 1 or size is None or math.prod(size) > SMALL_PIXELS:
            return False
        return isinstance(pictures[0], Picture) and is_small(pictures[0])

    def open(self, picture: PictureSource) -> Image.Image:
        """Return the picture upright at full size as RGB."""
        opened = picture.open(max_pixels=self._max_pixels)
        charge(opened.cost("RGB", opened.size))
        return opened.decode("RGB", self._background, opened.size)

    @property
    def example_size(self) -> tuple[int, int] | None:
        """Return (height, width) of the network's input, or None if it depends on the picture."""
        return None if self.config.follows else self.config.size

    def _widest(self, pictures: Sequence[PictureSource]) -> tuple[int, int] | None:
        """Return the canvas that holds every picture of a batch; smaller ones lie at its top left."""
        canvases = []
        for picture in pictures:
            canvas = following_canvas(picture.open(max_pixels=self._max_pixels).size, self.config)
            self._check_grown(picture, canvas, f"resizing to {list(self.config.size or ())}")
            canvases.append(canvas)
        return (max(width for width, _ in canvases), max(height for _, height in canvases)) if canvases else None

    def _cost_of_fitting(self, size: tuple[int, int], placement: Placement) -> int:
        """Return the bytes between a decoded picture and its tensor: intermediate, resized and as arrays."""
        canvas, padded = math.prod(placement.canvas), padded_size(size, self.config)
        half = 0 if self.config.resize == "none" else half_resized(padded, placement.canvas)
        rows = math.prod(padded) if padded != size else 0
        return RGB_BYTES * (half + rows) + canvas * (16 + self._dtype.itemsize)

    def _canvas(self, picture: PictureSource, size: tuple[int, int]) -> tuple[int, int]:
        if self.config.resize == "limit":
            canvas = limited_canvas(size, self.config)
            self._check_grown(picture, canvas, "resizing to the limits of its sides")
            return canvas
        if self.config.size is None:
            return self._grown(picture, size)
        canvas = (self.config.size[1], self.config.size[0])
        if self.config.resize == "none" and size != canvas:
            raise InputMismatchError(
                f"input '{self.port.name}': {picture.label} has the wrong size: found {size[0]}x{size[1]},"
                f" expected {canvas[0]}x{canvas[1]} (this model does not resize)",
                input=self.port.name,
                found=list(size),
                expected=list(canvas),
            )
        return canvas

    def _grown(self, picture: PictureSource, size: tuple[int, int]) -> tuple[int, int]:
        width, height = (rounded_up(side, self.config.multiple) for side in size)
        self._check_grown(picture, (width, height), f"growing to multiples of {self.config.multiple}")
        return width, height

    def _check_grown(self, picture: PictureSource, canvas: tuple[int, int], by: str) -> None:
        if canvas[0] * canvas[1] > self._max_pixels:
            raise RequestTooLargeError(
                f"{picture.label} has too many pixels: found {canvas[0]}x{canvas[1]} after {by}, expected at most"
                f" {self._max_pixels}",
                found=canvas[0] * canvas[1],
                limit=self._max_pixels,
            )

    def _fit(self, image: Image.Image, placement: Placement) -> tuple[NDArray[np.uint8], tuple[int, int]]:
        """Resize the visible part of the picture, and return it with its corner (x, y) on the canvas.

        Pillow's filters look beyond the box, so a crop is exact.
        """
        if placement.resized == placement.canvas == image.size:
            return _pixels(image), (0, 0)
        way = _INTERPOLATION[self.config.interpolation]
        if self.config.resize == "none":
            return _repeat_edges(np.asarray(image), placement.canvas), (0, 0)
        if self.config.resize == "limit":
            image = self._padded(image, placement)
            return _pixels(resized(image, placement.canvas, way, (0, 0, *image.size))), (0, 0)
        (left, top), (across, down) = (map(int, pair) for pair in (placement.origin, placement.resized))
        canvas = placement.canvas
        x0, y0 = max(left, 0), max(top, 0)
        x1, y1 = min(left + canvas[0], across), min(top + canvas[1], down)
        scale_x, scale_y = image.width / across, image.height / down
        # Rounding may put the product slightly beyond the edge, which Pillow refuses.
        box = (x0 * scale_x, y0 * scale_y, min(x1 * scale_x, image.width), min(y1 * scale_y, image.height))
        part = resized(image, (x1 - x0, y1 - y0), way, box)
        return _pixels(part), (x0 - left, y0 - top)

    def _padded(self, image: Image.Image, placement: Placement) -> Image.Image:
        """Return a picture with the rows above and below that a placement has; the filter blends them."""
        above = round(-placement.origin[1] / placement.resized[1] * image.height)
        if not above:
            return image
        fill = (round(self.config.fill),) * len(image.getbands())
        padded = Image.new(image.mode, (image.width, image.height + 2 * above), fill)
        padded.paste(image, (0, above))
        return padded

    def _empty(self, count: int, canvas: tuple[int, int]) -> NDArray[Any]:
        channels, (width, height) = len(self._table), canvas
        shape = (channels, height, width) if self.config.layout == "nchw" else (height, width, channels)
        charge(count * math.prod(shape) * self._dtype.itemsize)
        return np.empty((count, *shape), self._dtype)

    def _fill_in(self, target: NDArray[Any], pixels: NDArray[np.uint8], corner: tuple[int, int]) -> None:
        planes = target if self.config.layout == "nchw" else np.moveaxis(target, -1, 0)
        source = pixels[..., None] if pixels.ndim == 2 else pixels
        if self.config.color == "bgr":
            source = source[..., ::-1]
        (x, y), (height, width) = corner, pixels.shape[:2]
        covered = planes[:, y : y + height, x : x + width]
        if covered.shape != planes.shape:
            planes[...] = self._padding[:, None, None]
        for channel, values in enumerate(self._table):
            # mode="clip" avoids a copy of the plane; every pixel value is a valid index.
            values.take(source[..., channel], out=covered[channel], mode="clip")


def find_preprocessor(
    inputs: Sequence[engine.Port], config: PreprocessConfig | None, settings: Settings
) -> Preprocessor | None:
    """Return the preprocessor of the first picture-like input; with [preprocess] any first input will do.

    Raises:
        ConfigError: there is a [preprocess] table and it does not fit.
    """
    table = PreprocessConfig() if config is None else config
    fitting = [port for port in inputs if takes_pictures(port, table.layout)]
    port = next(iter(fitting if config is None else [*fitting, *inputs[:1]]), None)
    if port is None:
        return None
    try:
        return Preprocessor(port, table, settings)
    except ConfigError:
        if config is not None:
            raise
        return None  # the size is dynamic and nothing is configured


def _pixels(image: Image.Image) -> NDArray[np.uint8]:
    """Return the pixels of an L or RGB picture; twice as fast as ``np.asarray`` for small ones."""
    shape = (image.height, image.width) if image.mode == "L" else (image.height, image.width, 3)
    return np.frombuffer(image.tobytes(), np.uint8).reshape(shape)


def _repeat_edges(pixels: NDArray[np.uint8], canvas: tuple[int, int]) -> NDArray[np.uint8]:
    height, width = pixels.shape[:2]
    growth = [(0, canvas[1] - height), (0, canvas[0] - width), (0, 0)][: pixels.ndim]
    return np.pad(pixels, growth, mode="edge")


def _sizes_differ(picture: PictureSource, found: tuple[int, int], expected: tuple[int, int]) -> InputMismatchError:
    return InputMismatchError(
        f"{picture.label} has a different size than the first: found {found[0]}x{found[1]},"
        f" expected {expected[0]}x{expected[1]} (this model needs pictures of equal size)"
    )


def resized(
    image: Image.Image, size: tuple[int, int], way: Image.Resampling, box: tuple[float, float, float, float]
) -> Image.Image:
    """Return the part of a picture in a box, resized.

    Pillow resizes rows first, then columns: for a picture of 10x60,000 resized to 640x640, the intermediate one has
    640x60,000 pixels. If that is far more than in the other order, columns come first; values may then differ by one,
    because the intermediate picture is rounded.
    """
    if not _columns_first(image.size, size):
        return image.resize(size, way, box=box)
    x0, y0, x1, y1 = box
    flat = image.resize((image.width, size[1]), way, box=(0, y0, image.width, y1))
    return flat.resize(size, way, box=(x0, 0, x1, size[1]))


def half_resized(picture: tuple[int, int], size: tuple[int, int]) -> int:
    """Return the number of pixels of the intermediate picture."""
    return picture[0] * size[1] if _columns_first(picture, size) else picture[1] * size[0]


def _columns_first(picture: tuple[int, int], size: tuple[int, int]) -> bool:
    rows_first = picture[1] * size[0]
    return rows_first > max(_PLENTY, _FAR_MORE * picture[0] * size[1])
