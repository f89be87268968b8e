"""Decoding of pictures to upright 8-bit RGB or grey, with limits checked before any pixel is decoded.

Upright means rotated as the EXIF orientation says. A header scan (app/images/headers) finds the size, which is
checked first, and the bytes that a decoder is given. Only ``FORMATS`` are decoded. Decoding stops when the request is
cancelled.
"""

from __future__ import annotations

import functools
import io
import math
import struct
from typing import Any, Final, Literal, NamedTuple

from PIL import Image, UnidentifiedImageError

from app.errors import InvalidRequestError, RequestTooLargeError, ServiceError
from app.images.headers import Header, HeaderError, TooManyPartsError, scan_header
from app.images.parts_file import PartsFile
from app.images.transparency import apply_grey_key, apply_wide_key, depth_of, is_wide, scale_key
from app.memory.reservation import check
from app.messages import cut

FORMATS: Final = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
Mode = Literal["RGB", "L"]

# Longer sides do not occur in practice, and Pillow's resizing tables would outgrow the picture.
MAX_SIDE: Final = 65_535

# Pictures of at most this many pixels and bytes decode in some hundred microseconds, whatever they contain.
SMALL_PIXELS: Final = 1 << 14
_PNG: Final = b"\x89PNG\r\n\x1a\n"
_PNG_HEAD: Final = struct.Struct(">8s8xLL")  # signature, chunk length and type, width and height

_UPRIGHT: Final = {
    2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_270, 7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}  # fmt: skip
_TURNED: Final = frozenset({5, 6, 7, 8})
_SMALL_MODES: Final = frozenset({"1", "L", "P"})
# Pixels converted at once, to bound the memory for intermediate values of several bytes a pixel.
_STRIP: Final = 1 << 21
# Bytes per pixel while a 16-bit transparent colour is matched: low bytes, comparisons and the result.
_WIDE_KEY: Final = 4 + 3 * 2 + 4
# Number of bytes that Pillow reads at once while decoding, between two checks for cancellation.
_AT_ONCE: Final = 1 << 16
_DEEP_MODES: Final = frozenset({"I", "I;16", "I;16L", "I;16B", "I;16N"})


def check_pixels(size: tuple[int, int], max_pixels: int, label: str) -> None:
    """Raise if a picture of this width and height has too many pixels.

    Raises:
        RequestTooLargeError: the message has the size and the limit.
    """
    width, height = size
    if width * height > max_pixels:
        raise RequestTooLargeError(
            f"{label} has too many pixels: found {width}x{height}, expected at most {max_pixels}",
            found=width * height,
            limit=max_pixels,
        )


class Picture(NamedTuple):
    """Encoded picture of a request, and its name in messages: "the picture", "picture 2 ('cat.jpg')"."""

    data: bytes | bytearray | memoryview
    label: str = "the picture"

    def open(self, *, max_pixels: int) -> OpenPicture:
        """Read the header.

        Raises:
            ServiceError: as ``OpenPicture``.
        """
        return OpenPicture(self, max_pixels=max_pixels)


class OpenPicture:
    """Picture whose header was read; ``size`` is (width, height) when upright. Pixels are decoded on demand.

    Raises:
        InvalidRequestError: the bytes are not a picture of a known format, or are damaged.
        RequestTooLargeError: the picture has too many pixels.
    """

    def __init__(self, picture: Picture, *, max_pixels: int) -> None:
        self._label = picture.label
        try:
            self._header = self._scanned(memoryview(picture.data))
            self._check_size(self._header.size, max_pixels)
            self._image = self._open(self._header)
            self._check_size(self._image.size, max_pixels)
            self._depth = depth_of(picture.data) if self._header.format == "PNG" else 8
            scale_key(self._image, self._depth)
        except Exception as exc:  # decoders raise any type of exception for hostile bytes
            raise self._refusal(exc) from exc
        self._is_turned = self._header.orientation in _TURNED
        width, height = self._image.size
        self.size = (height, width) if self._is_turned else (width, height)

    def decode(self, mode: Mode, background: tuple[int, int, int], at_least: tuple[float, float]) -> Image.Image:
        """Return the upright pixels, with transparent ones composited onto the background.

        Args:
            mode: RGB or L.
            background: colour for transparent pixels.
            at_least: (width, height) to which the caller will shrink the picture. A JPEG is decoded at 1/2, 1/4 or 1/8
                if that leaves twice this size, which costs a fraction of the time.
        """
        try:
            self._draft(mode, at_least)
            self._image.load()
            keyed = self._image
            if is_wide(keyed, self._depth):
                keyed = apply_wide_key(keyed, lambda: self._open(self._header))
            image = _flatten(keyed, mode, background)
            way = _UPRIGHT.get(self._header.orientation)
            return image if way is None else image.transpose(way)
        except Exception as exc:  # see __init__
            raise self._refusal(exc) from exc

    def cost(self, mode: Mode, at_least: tuple[float, float]) -> int:
        """Return the number of bytes that ``decode`` takes, including its result."""
        self._draft(mode, at_least)
        width, height = self._image.size
        stored = 1 if self._image.mode in _SMALL_MODES else 4
        copies = 4 * (self._image.mode != mode) + 4 * (self._header.orientation in _UPRIGHT)
        copies += _WIDE_KEY * is_wide(self._image, self._depth)
        strips = 24 * min(_STRIP, width * height) if self._image.mode != mode else 0
        return width * height * (stored + copies) + strips + self._header.extra_bytes

    def _draft(self, mode: Mode, at_least: tuple[float, float]) -> None:
        width, height = at_least[::-1] if self._is_turned else at_least
        self._image.draft(mode, (math.ceil(2 * width), math.ceil(2 * height)))

    def _scanned(self, data: memoryview) -> Header:
        found = scan_header(data)
        if found is None:
            raise UnidentifiedImageError
        return found

    def _open(self, found: Header) -> Image.Image:
        if not found.pauses and sum(map(len, found.parts)) <= _AT_ONCE:
            # Decoders read a byte or two at a time, which BytesIO serves faster.
            return Image.open(io.BytesIO(b"".join(found.parts)), formats=(found.format,))
        excerpt: Any = PartsFile(found.parts, found.pauses)
        image: Any = Image.open(excerpt, formats=(found.format,))
        if found.pauses:
            image.load_read = excerpt.read_on
        opened: Image.Image = image
        return opened

    def _check_size(self, size: tuple[int, int], max_pixels: int) -> None:
        check_pixels(size, max_pixels, self._label)
        if max(size) > MAX_SIDE:
            raise RequestTooLargeError(
                f"{self._label} has too long a side: found {size[0]}x{size[1]}, expected at most {MAX_SIDE}",
                found=max(size),
                limit=MAX_SIDE,
            )

    def _refusal(self, exc: Exception) -> ServiceError:
        if isinstance(exc, (Image.DecompressionBombError, Image.DecompressionBombWarning)):
            return RequestTooLargeError(f"{self._label} has too many pixels to be decoded safely")
        if isinstance(exc, UnidentifiedImageError):
            return InvalidRequestError(f"{self._label} is not in a known format, expected one of {', '.join(FORMATS)}")
        if isinstance(exc, ServiceError):
            return exc
        if isinstance(exc, TooManyPartsError):
            return RequestTooLargeError(f"{self._label} {exc}", limit=exc.limit)
        reason = f": {cut(str(exc))}" if isinstance(exc, (OSError, SyntaxError, HeaderError)) else ""
        return InvalidRequestError(f"{self._label} is damaged or incomplete{reason}")


def is_small(picture: Picture) -> bool:
    """Return whether the header claims a picture small enough to decode in some hundred microseconds."""
    size = len(picture.data)
    if size >= _PNG_HEAD.size:
        beginning, width, height = _PNG_HEAD.unpack_from(picture.data)
        if beginning == _PNG:  # read the size without a full scan
            return width * height <= SMALL_PIXELS and size <= SMALL_PIXELS
    try:
        found = scan_header(memoryview(picture.data))
    except Exception:  # decoding will report the problem
        return False
    return (
        found is not None
        and found.format == "JPEG"
        and not found.pauses
        and found.size[0] * found.size[1] <= SMALL_PIXELS
        and sum(map(len, found.parts)) <= SMALL_PIXELS
    )


@functools.cache
def make_ready() -> None:
    """Import the decoders of PNG and JPEG ahead of the first request; Pillow imports each on first use."""
    for kind in ("PNG", "JPEG"):
        sample = io.BytesIO()
        Image.new("RGB", (8, 8)).save(sample, kind)
        OpenPicture(Picture(data=sample.getvalue()), max_pixels=64).decode("RGB", (0, 0, 0), (8, 8))


def _flatten(image: Image.Image, mode: Mode, background: tuple[int, int, int]) -> Image.Image:
    if image.mode == "F":
        raise InvalidRequestError(
            "found a picture with floating-point pixels, expected integers; send the values as a tensor"
        )
    if image.mode == mode and not image.has_transparency_data:
        return image
    rows = max(1, _STRIP // image.width)
    if rows >= image.height:
        return _converted(image, mode, background)
    whole = Image.new(mode, image.size)
    for top in range(0, image.height, rows):
        check()
        strip = image.crop((0, top, image.width, min(top + rows, image.height)))
        whole.paste(_converted(strip, mode, background), (0, top))
    return whole


def _converted(image: Image.Image, mode: Mode, background: tuple[int, int, int]) -> Image.Image:
    if image.mode in _DEEP_MODES:
        image = apply_grey_key(image)
    if image.has_transparency_data:
        opaque = Image.new("RGBA", image.size, background)
        image = Image.alpha_composite(opaque, image.convert("RGBA"))
    return image if image.mode == mode else image.convert(mode)
