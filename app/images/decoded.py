"""Pictures as preprocessing takes them: encoded, decoded already, or cropped from one that is."""

from __future__ import annotations

from typing import Protocol

from PIL import Image

from app.images.decode import Mode, check_pixels
from app.images.palette import Color
from app.memory.reservation import charge, charged

# Bytes per pixel of Pillow's RGB.
RGB_BYTES = 4
_WHITE: Color = (255, 255, 255)


class Pixels(Protocol):
    """Picture of known size whose pixels can be had."""

    @property
    def size(self) -> tuple[int, int]:
        """Return (width, height) when upright."""

    def cost(self, mode: Mode, at_least: tuple[float, float]) -> int:
        """Return the number of bytes that ``decode`` takes, including its result."""

    def decode(self, mode: Mode, background: tuple[int, int, int], at_least: tuple[float, float]) -> Image.Image:
        """Return the upright pixels; see ``OpenPicture.decode``."""


class PictureSource(Protocol):
    """Picture of a request, or part of one, with its name in messages."""

    @property
    def label(self) -> str:
        """Return the name in messages."""

    def open(self, *, max_pixels: int) -> Pixels:
        """Return the picture with its size.

        Raises:
            ServiceError: it is damaged, or has more pixels.
        """


class DecodedPicture:
    """Upright RGB picture in memory; steps of a pipeline share it.

    Args:
        image: its pixels.
        label: its name in messages.
    """

    def __init__(self, image: Image.Image, label: str = "the picture") -> None:
        self._image = image
        self.label = label
        self.size = image.size

    def open(self, *, max_pixels: int) -> DecodedPicture:
        """Return the picture itself.

        Raises:
            RequestTooLargeError: it has more pixels.
        """
        check_pixels(self.size, max_pixels, self.label)
        return self

    def cost(self, mode: Mode, at_least: tuple[float, float]) -> int:
        """Return the bytes of another mode; the picture itself is charged already."""
        return 0 if mode == self._image.mode else self.size[0] * self.size[1]

    def decode(self, mode: Mode, background: tuple[int, int, int], at_least: tuple[float, float]) -> Image.Image:
        """Return the pixels, without a copy in the same mode."""
        return self._image if mode == self._image.mode else self._image.convert(mode)


def decode_once(picture: PictureSource, max_pixels: int) -> PictureSource:
    """Return a picture decoded at full size, on white, which is charged to the request.

    Raises:
        ServiceError: it is damaged, or has too many pixels.
    """
    if isinstance(picture, DecodedPicture):
        return picture
    opened = picture.open(max_pixels=max_pixels)
    with charged(opened.cost("RGB", opened.size)):
        image = opened.decode("RGB", _WHITE, opened.size)
    charge(RGB_BYTES * image.width * image.height)
    return DecodedPicture(image, picture.label)
