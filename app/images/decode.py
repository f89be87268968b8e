"""Encoded pictures -> upright 8-bit pictures, as RGB or grey. What is hostile is refused before it is decoded.

Upright means turned as the EXIF orientation says: the picture as a person sees it. Its size is read from the header
and checked against the limit before any pixel is decoded; only formats of ``FORMATS`` are ever handed to a decoder.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from app.errors import InvalidRequestError, RequestTooLargeError, ServiceError

FORMATS: Final = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
Mode = Literal["RGB", "L"]

_ORIENTATION: Final = 0x0112
_TURNED: Final = frozenset({5, 6, 7, 8})
_DEEP_MODES: Final = frozenset({"I", "I;16", "I;16L", "I;16B", "I;16N"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One encoded picture of a request and what messages call it: "the picture", "picture 2 ('cat.jpg')"."""

    data: bytes | bytearray | memoryview
    label: str = "the picture"


class OpenPicture:
    """A picture whose header was read: knows its size (width, height) as a person sees it, decodes when asked.

    Raises:
        InvalidRequestError: the bytes are no picture of a known format, or are damaged.
        RequestTooLargeError: more pixels than allowed.
    """

    def __init__(self, picture: Picture, *, max_pixels: int) -> None:
        self._label = picture.label
        try:
            self._image = Image.open(io.BytesIO(picture.data), formats=FORMATS)
            self._check_size(max_pixels)
            # Not before: of a PNG, whose EXIF may come last, this decodes the pixels.
            self._is_turned = self._image.getexif().get(_ORIENTATION) in _TURNED
        except Exception as exc:  # decoders of hostile bytes fail in any way there is
            raise self._refusal(exc) from exc
        width, height = self._image.size
        self.size = (height, width) if self._is_turned else (width, height)

    def decode(self, mode: Mode, background: tuple[int, int, int], at_least: tuple[int, int]) -> Image.Image:
        """The pixels, upright; transparent ones laid on the background.

        at_least: (width, height) the caller will shrink the picture to. A JPEG is decoded at 1/2, 1/4 or 1/8 when that
        leaves twice this size, which costs a fraction of the time.
        """
        try:
            width, height = at_least[::-1] if self._is_turned else at_least
            self._image.draft(mode, (2 * width, 2 * height))
            self._image.load()
            return _flatten(ImageOps.exif_transpose(self._image), mode, background)
        except Exception as exc:  # as above
            raise self._refusal(exc) from exc

    def _check_size(self, max_pixels: int) -> None:
        width, height = self._image.size
        if width * height > max_pixels:
            raise RequestTooLargeError(
                f"{self._label} has too many pixels: found {width}x{height}, expected at most {max_pixels}",
                found=width * height,
                limit=max_pixels,
            )

    def _refusal(self, exc: Exception) -> ServiceError:
        if isinstance(exc, (Image.DecompressionBombError, Image.DecompressionBombWarning)):
            return RequestTooLargeError(f"{self._label} has too many pixels to be decoded safely")
        if isinstance(exc, UnidentifiedImageError):
            return InvalidRequestError(f"{self._label} is not in a known format, expected one of {', '.join(FORMATS)}")
        if isinstance(exc, ServiceError):
            return exc
        reason = f": {exc}" if isinstance(exc, (OSError, SyntaxError)) else ""
        return InvalidRequestError(f"{self._label} is damaged or incomplete{reason}")


def _flatten(image: Image.Image, mode: Mode, background: tuple[int, int, int]) -> Image.Image:
    if image.mode in _DEEP_MODES:
        # 16 bits a pixel; Pillow's own conversion would cut at 255 instead of scaling.
        image = Image.fromarray((np.clip(np.asarray(image), 0, 0xFFFF) >> 8).astype(np.uint8))
    elif image.mode == "F":
        raise InvalidRequestError("pictures of floating point pixels are not taken; send the values as a tensor")
    if image.has_transparency_data:
        opaque = Image.new("RGBA", image.size, background)
        image = Image.alpha_composite(opaque, image.convert("RGBA"))
    return image if image.mode == mode else image.convert(mode)
