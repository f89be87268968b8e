"""Pictures -> the network's input, by the model's [preprocess] table.

What the table leaves out is settled once, at load, from the graph: size and colours from the input's shape, the scale
from its dtype. Every pixel goes through a table of 256 values per channel, computed in float64 and rounded once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import engine
from app.errors import ConfigError, InputMismatchError, RequestTooLargeError
from app.images.config import PreprocessConfig
from app.images.decode import SMALL_PIXELS, Mode, OpenPicture, Picture, is_small, make_ready
from app.images.placement import Placement, place
from app.images.settling import background, pixel_values, settled, takes_pictures
from app.memory.reservation import charge, charged, check
from app.settings import Settings

_INTERPOLATION: Final = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
    "box": Image.Resampling.BOX,
}
# Pixels half-done that nobody needs to save.
_PLENTY: Final = 1 << 24
_FAR_MORE: Final = 4


class Prepared(NamedTuple):
    """A batch of pictures as the network takes it, where each lies, and what it cost in seconds."""

    tensor: NDArray[Any]
    placements: tuple[Placement, ...]
    decode_s: float
    preprocess_s: float


class Preprocessor:
    """One model's way from pictures to its input.

    Raises:
        ConfigError: when the table contradicts the graph, or leaves open what the graph leaves open too.
    """

    def __init__(self, port: engine.Port, config: PreprocessConfig, settings: Settings) -> None:
        self.port = port
        self.config = settled(port, config)
        self._settings = settings
        self._max_pixels = min(settings.max_pixels, config.max_pixels or settings.max_pixels)
        self._dtype = np.dtype(np.float32) if port.spec is None else port.spec.dtype
        self._mode: Mode = "L" if self.config.color == "grey" else "RGB"
        self._background = background(config.alpha)
        self._fill = self.config.fill if self._mode == "L" else (self.config.fill,) * 3
        self._table = pixel_values(self.config, self._dtype, 1 if self._mode == "L" else 3)
        make_ready()

    def __call__(
        self, pictures: Sequence[Picture], admit: Callable[[NDArray[Any]], None] = lambda batch: None
    ) -> Prepared:
        """Decode, resize and normalise a batch, one picture at a time so that one decoded picture exists at once.

        admit: given the batch before anything is decoded into it; raises where a batch of that shape will not be run.
        """
        if len(pictures) > self._settings.max_images:
            raise RequestTooLargeError(
                f"too many pictures: found {len(pictures)}, expected at most {self._settings.max_images}"
            )
        start, decode_s = time.perf_counter(), 0.0
        canvas = self._widest(pictures) if self._follows else None
        batch: NDArray[Any] | None = None
        placements: list[Placement] = []
        for index, picture in enumerate(pictures):
            check()
            before = time.perf_counter()
            opened, placement = self._opened(picture)
            placement = placement if canvas is None else placement._replace(canvas=canvas)
            if batch is None:
                batch = self._empty(len(pictures), placement.canvas)
                admit(batch)
            elif placement.canvas != placements[0].canvas:
                raise _sizes_differ(picture, placement.canvas, placements[0].canvas)
            with charged(opened.cost(self._mode, placement.resized) + self._cost_of_fitting(opened.size, placement)):
                image = opened.decode(self._mode, self._background, placement.resized)
                decode_s += time.perf_counter() - before
                self._fill_in(batch[index], self._fit(image, placement))
                del image, opened
            placements.append(placement)
        if batch is None:
            raise InputMismatchError(f"input '{self.port.name}': no picture was sent, expected at least one")
        total_s = time.perf_counter() - start
        return Prepared(tensor=batch, placements=tuple(placements), decode_s=decode_s, preprocess_s=total_s - decode_s)

    def is_light(self, pictures: Sequence[Picture]) -> bool:
        """Whether it takes no time to make a tensor of them: one picture, small as it is sent and as it is taken."""
        size = self.example_size
        return len(pictures) == 1 and size is not None and math.prod(size) <= SMALL_PIXELS and is_small(pictures[0])

    def open(self, picture: Picture) -> Image.Image:
        """The picture itself as a person sees it: upright, in its own pixels, RGB."""
        opened = OpenPicture(picture, max_pixels=self._max_pixels)
        charge(opened.cost("RGB", opened.size))
        return opened.decode("RGB", self._background, opened.size)

    @property
    def example_size(self) -> tuple[int, int] | None:
        """(height, width) of the network's input, None where it depends on the picture."""
        return None if self._follows else self.config.size

    @property
    def _follows(self) -> bool:
        """Whether one side of the canvas follows from the other and the picture."""
        return self.config.size is not None and 0 in self.config.size

    def _widest(self, pictures: Sequence[Picture]) -> tuple[int, int] | None:
        """The canvas that holds each picture of a batch: those that are smaller lie at its left and top."""
        canvases = [self._opened(picture)[1].canvas for picture in pictures]
        return (max(width for width, _ in canvases), max(height for _, height in canvases)) if canvases else None

    def _opened(self, picture: Picture) -> tuple[OpenPicture, Placement]:
        opened = OpenPicture(picture, max_pixels=self._max_pixels)
        if self._follows:
            return opened, self._following(picture, opened.size)
        canvas = self._canvas(picture, opened.size)
        return opened, place(opened.size, canvas, self.config)

    def _following(self, picture: Picture, size: tuple[int, int]) -> Placement:
        height, width = self.config.size or (0, 0)
        if width == 0:
            resized = (max(1, round(size[0] * height / size[1])), height)
            canvas = (self._multiple(resized[0]), height)
        else:
            resized = (width, max(1, round(size[1] * width / size[0])))
            canvas = (width, self._multiple(resized[1]))
        self._check_grown(picture, canvas, f"resizing to {list(self.config.size or ())}")
        return Placement(picture=size, resized=resized, canvas=canvas)

    def _multiple(self, side: int) -> int:
        return -(-side // self.config.multiple) * self.config.multiple

    def _cost_of_fitting(self, size: tuple[int, int], placement: Placement) -> int:
        """The bytes between a decoded picture and its tensor: the resized picture, half resized, and as arrays."""
        canvas = placement.canvas[0] * placement.canvas[1]
        half = 0 if self.config.resize == "none" else half_resized(size, placement.canvas)
        return 4 * half + canvas * (16 + self._dtype.itemsize)

    def _canvas(self, picture: Picture, size: tuple[int, int]) -> tuple[int, int]:
        if self.config.size is None:
            return self._grown(picture, size)
        canvas = (self.config.size[1], self.config.size[0])
        if self.config.resize == "none" and size != canvas:
            raise InputMismatchError(
                f"input '{self.port.name}': {picture.label} has the wrong size: found {size[0]}x{size[1]},"
                f" expected {canvas[0]}x{canvas[1]} (this model resizes nothing)",
                input=self.port.name,
                found=list(size),
                expected=list(canvas),
            )
        return canvas

    def _grown(self, picture: Picture, size: tuple[int, int]) -> tuple[int, int]:
        width, height = map(self._multiple, size)
        self._check_grown(picture, (width, height), f"growing to multiples of {self.config.multiple}")
        return width, height

    def _check_grown(self, picture: Picture, canvas: tuple[int, int], by: str) -> None:
        if canvas[0] * canvas[1] > self._max_pixels:
            raise RequestTooLargeError(
                f"{picture.label} has too many pixels: found {canvas[0]}x{canvas[1]} after {by}, expected at most"
                f" {self._max_pixels}",
                found=canvas[0] * canvas[1],
                limit=self._max_pixels,
            )

    def _fit(self, image: Image.Image, placement: Placement) -> NDArray[np.uint8]:
        """Resize what the canvas shows of the picture; Pillow's filters look beyond the box, so a crop is exact."""
        if placement.resized == placement.canvas == image.size:
            return _pixels(image)
        if self.config.resize == "none":
            return _repeat_edges(np.asarray(image), placement.canvas)
        (left, top), (across, down), canvas = placement.origin, placement.resized, placement.canvas
        x0, y0 = max(left, 0), max(top, 0)
        x1, y1 = min(left + canvas[0], across), min(top + canvas[1], down)
        scale_x, scale_y = image.width / across, image.height / down
        # min(): a product that should be the edge itself may be a rounding error beyond it, which Pillow refuses.
        box = (x0 * scale_x, y0 * scale_y, min(x1 * scale_x, image.width), min(y1 * scale_y, image.height))
        part = resized(image, (x1 - x0, y1 - y0), _INTERPOLATION[self.config.interpolation], box)
        if part.size == canvas:
            return _pixels(part)
        whole = Image.new(self._mode, canvas, self._fill)
        whole.paste(part, (x0 - left, y0 - top))
        return np.asarray(whole)

    def _empty(self, count: int, canvas: tuple[int, int]) -> NDArray[Any]:
        channels, (width, height) = len(self._table), canvas
        shape = (channels, height, width) if self.config.layout == "nchw" else (height, width, channels)
        charge(count * math.prod(shape) * self._dtype.itemsize)
        return np.empty((count, *shape), self._dtype)

    def _fill_in(self, target: NDArray[Any], pixels: NDArray[np.uint8]) -> None:
        planes = target if self.config.layout == "nchw" else np.moveaxis(target, -1, 0)
        source = pixels[..., None] if pixels.ndim == 2 else pixels
        if self.config.color == "bgr":
            source = source[..., ::-1]
        for channel, values in enumerate(self._table):
            # Every pixel is one of the table's; to say so spares a copy of the plane.
            values.take(source[..., channel], out=planes[channel], mode="clip")


def find_preprocessor(
    inputs: Sequence[engine.Port], config: PreprocessConfig | None, settings: Settings
) -> Preprocessor | None:
    """For the first input that looks like pictures; a [preprocess] table says that there is one.

    Raises:
        ConfigError: there is such a table, and it does not fit.
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
        return None  # an open size, and nobody said that pictures are sent


def _pixels(image: Image.Image) -> NDArray[np.uint8]:
    """``np.asarray``, which asks twice as long of a small picture, for the two modes there are here."""
    shape = (image.height, image.width) if image.mode == "L" else (image.height, image.width, 3)
    return np.frombuffer(image.tobytes(), np.uint8).reshape(shape)


def _repeat_edges(pixels: NDArray[np.uint8], canvas: tuple[int, int]) -> NDArray[np.uint8]:
    height, width = pixels.shape[:2]
    growth = [(0, canvas[1] - height), (0, canvas[0] - width), (0, 0)][: pixels.ndim]
    return np.pad(pixels, growth, mode="edge")


def _sizes_differ(picture: Picture, found: tuple[int, int], expected: tuple[int, int]) -> InputMismatchError:
    return InputMismatchError(
        f"{picture.label} has another size than the first: found {found[0]}x{found[1]},"
        f" expected {expected[0]}x{expected[1]} (the pictures of a batch must be alike when the model resizes nothing)"
    )


def resized(
    image: Image.Image, size: tuple[int, int], way: Image.Resampling, box: tuple[float, float, float, float]
) -> Image.Image:
    """Return the part of a picture in a box, brought to a size.

    Pillow resizes rows first, then columns: of a picture 10 wide and 60,000 high that is to become 640 by 640 the
    half-done one has 640 times 60,000 pixels. Where that is far more than the other way round, columns come first;
    values may then differ by one, for what is half-done is rounded.
    """
    if not _columns_first(image.size, size):
        return image.resize(size, way, box=box)
    x0, y0, x1, y1 = box
    flat = image.resize((image.width, size[1]), way, box=(0, y0, image.width, y1))
    return flat.resize(size, way, box=(x0, 0, x1, size[1]))


def half_resized(picture: tuple[int, int], size: tuple[int, int]) -> int:
    """Pixels of the half-done picture."""
    return picture[0] * size[1] if _columns_first(picture, size) else picture[1] * size[0]


def _columns_first(picture: tuple[int, int], size: tuple[int, int]) -> bool:
    rows_first = picture[1] * size[0]
    return rows_first > max(_PLENTY, _FAR_MORE * picture[0] * size[1])
