"""Encoded pictures: what is understood, what is refused, and when."""

from __future__ import annotations

import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from app.errors import InvalidRequestError, RequestTooLargeError, ServiceError
from app.images.decode import OpenPicture, Picture
from tests.app.pictures import bomb, encoded, gradient

WHITE = (255, 255, 255)


def pixels(data: bytes, mode: str = "RGB", background: tuple[int, int, int] = WHITE) -> np.ndarray:
    opened = OpenPicture(Picture(data=data), max_pixels=1_000_000)
    image = opened.decode(mode, background, opened.size)  # type: ignore[arg-type]
    assert image.mode == mode and image.size == opened.size
    return np.asarray(image)


@pytest.mark.parametrize("format", ["PNG", "BMP", "TIFF", "GIF", "WEBP", "JPEG"])
def test_every_format_is_decoded(format: str) -> None:
    options = {"lossless": True} if format == "WEBP" else {"quality": 100, "subsampling": 0} if format == "JPEG" else {}
    picture = Image.new("RGB", (7, 5), (200, 100, 50))
    tolerance = 3 if format == "JPEG" else 0
    np.testing.assert_allclose(pixels(encoded(picture, format, **options)), np.asarray(picture), atol=tolerance)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_are_turned_upright(orientation: int) -> None:
    upright = gradient(6, 4)
    # How a camera stores an upright picture under each EXIF orientation: the inverse of what a viewer does.
    stored = {
        1: lambda x: x, 2: np.fliplr, 3: lambda x: np.rot90(x, 2), 4: np.flipud,
        5: lambda x: x.swapaxes(0, 1), 6: lambda x: np.rot90(x, 1), 7: lambda x: np.rot90(x, 2).swapaxes(0, 1),
        8: lambda x: np.rot90(x, -1),
    }[orientation](np.asarray(upright))  # fmt: skip
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(Image.fromarray(np.ascontiguousarray(stored)), "PNG", exif=exif)
    np.testing.assert_array_equal(pixels(data), np.asarray(upright))


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "CMYK", "YCbCr"])
def test_modes_without_transparency_look_as_pillow_shows_them(mode: str) -> None:
    picture = gradient(6, 4).convert(mode)
    data = encoded(picture, "TIFF" if mode in ("CMYK", "YCbCr") else "PNG")
    np.testing.assert_array_equal(pixels(data), np.asarray(picture.convert("RGB")))


def test_sixteen_bits_are_scaled_not_cut() -> None:
    values = np.array([[0, 255, 256, 32768, 65535]], np.uint16)
    assert pixels(encoded(Image.fromarray(values)), "L").tolist() == [[0, 0, 1, 128, 255]]


def test_transparency_shows_the_background() -> None:
    picture = Image.new("RGBA", (2, 1), (255, 0, 0, 255))
    picture.putpixel((1, 0), (0, 0, 255, 0))
    assert pixels(encoded(picture), background=(1, 2, 3)).tolist() == [[[255, 0, 0], [1, 2, 3]]]


def test_half_transparent_grey_is_mixed_with_the_background() -> None:
    assert pixels(encoded(Image.new("LA", (1, 1), (0, 128))), "L").tolist() == [[127]]


def test_a_transparent_palette_entry_shows_the_background() -> None:
    picture = Image.new("P", (2, 1))
    picture.putpalette([255, 0, 0, 0, 255, 0])
    picture.putpixel((1, 0), 1)
    assert pixels(encoded(picture, transparency=1)).tolist() == [[[255, 0, 0], [255, 255, 255]]]


def keyed_png(depth: int, samples: list[int], key: list[int]) -> bytes:
    """A PNG of one row, grey for a key of one sample and RGB for one of three, whose key is transparent."""
    bits = "".join(f"{sample:0{depth}b}" for sample in samples)
    bits += "0" * (-len(bits) % 8)
    row = bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits), 8))
    header = struct.pack(">IIBBBBB", len(samples) // len(key), 1, depth, 2 if len(key) == 3 else 0, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"tRNS", struct.pack(f">{len(key)}H", *key)),
              (b"IDAT", zlib.compress(b"\0" + row)), (b"IEND", b"")]  # fmt: skip
    framed = [struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
              for kind, data in chunks]  # fmt: skip
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)


# PNG specification, 11.3.2.1: a pixel is transparent if all bits of its samples are those of the key.
@pytest.mark.parametrize(
    ("depth", "samples", "key", "shown"),
    [
        (1, [0, 1], [0], [255, 255]),
        (1, [0, 1], [1], [0, 255]),
        (2, [0, 1, 2, 3], [1], [0, 255, 170, 255]),
        (4, [0, 1, 5, 15], [5], [0, 17, 255, 255]),
        (8, [0, 1, 5, 255], [5], [0, 1, 255, 255]),
        (16, [0, 100 * 257], [0], [255, 100]),
        (16, [0x1234, 0x1235, 0x3434], [0x1234], [255, 0x12, 0x34]),
        (8, [1, 2, 3, 1, 2, 4], [1, 2, 3], [[255] * 3, [1, 2, 4]]),
        (16, [0x1234, 0x1234, 0x1234, 0x1235, 0x1234, 0x1234, 0x3434, 0x3434, 0x3434], [0x1234] * 3,
         [[255] * 3, [0x12] * 3, [0x34] * 3]),
    ],
)  # fmt: skip
def test_a_transparent_colour_of_every_depth_shows_the_background(
    depth: int, samples: list[int], key: list[int], shown: list[object]
) -> None:
    mode = "L" if len(key) == 1 else "RGB"
    assert pixels(keyed_png(depth, samples, key), mode, background=WHITE).tolist() == [shown]


def test_a_large_jpeg_is_decoded_small_but_never_below_twice_the_target() -> None:
    opened = OpenPicture(Picture(data=encoded(gradient(640, 480), "JPEG")), max_pixels=10**6)
    assert opened.decode("RGB", WHITE, (70, 50)).size == (160, 120)
    assert opened.size == (640, 480)


def test_the_size_is_the_upright_one() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    assert OpenPicture(Picture(data=encoded(gradient(6, 4), "JPEG", exif=exif)), max_pixels=100).size == (4, 6)


def test_pixels_are_counted_before_any_is_decoded() -> None:
    with pytest.raises(RequestTooLargeError, match="too many pixels: found 2000x2000, expected at most 1000000"):
        OpenPicture(Picture(data=bomb(2000, 2000)), max_pixels=1_000_000)


@pytest.mark.parametrize("side", [12_000, 50_000])
def test_what_pillow_calls_a_bomb_is_refused_as_too_large(side: int) -> None:
    with pytest.raises(RequestTooLargeError, match="too many pixels"):
        OpenPicture(Picture(data=bomb(side, side)), max_pixels=1_000_000)


@pytest.mark.parametrize(
    "data", [b"", b"hello", b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"%PDF-1.4", b"\xff\xd8"]
)
def test_bytes_that_are_no_picture_are_refused_with_the_formats_there_are(data: bytes) -> None:
    expected = "picture 3 is not in a known format, expected one of JPEG, PNG, WEBP, GIF, BMP, TIFF"
    with pytest.raises(InvalidRequestError, match=expected):
        OpenPicture(Picture(data=data, label="picture 3"), max_pixels=100)


@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_half_a_picture_is_refused(format: str) -> None:
    data = encoded(Image.effect_noise((64, 64), 90).convert("RGB"), format)
    with pytest.raises(InvalidRequestError, match="the picture is (damaged or incomplete|not in a known format)"):
        pixels(data[: len(data) // 2])


def test_floating_point_pixels_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="floating-point pixels"):
        pixels(encoded(Image.new("F", (2, 2)), "TIFF"))


def test_no_message_shows_the_machine() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        OpenPicture(Picture(data=b"nothing"), max_pixels=100)
    assert "0x" not in str(caught.value) and str(Path.cwd()) not in str(caught.value)


SEEDS = [encoded(gradient(9, 7), format) for format in ("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF")]


@given(st.data(), st.sampled_from(SEEDS))
def test_mutated_pictures_are_decoded_or_refused_in_words(data: st.DataObject, seed: bytes) -> None:
    mutated = bytearray(seed)
    for _ in range(data.draw(st.integers(1, 5))):
        mutated[data.draw(st.integers(0, len(seed) - 1))] = data.draw(st.integers(0, 255))
    try:
        opened = OpenPicture(Picture(data=mutated), max_pixels=10_000)
        opened.decode("RGB", WHITE, (4, 4))
    except ServiceError as error:
        assert error.status in (400, 413)


def test_bytes_may_come_in_any_buffer() -> None:
    data = encoded(gradient(3, 3))
    for buffer in (data, bytearray(data), memoryview(data)):
        assert OpenPicture(Picture(data=buffer), max_pixels=100).size == (3, 3)


def test_the_usual_decoders_are_at_hand_before_the_first_picture_comes() -> None:
    code = (
        "import sys, engine, numpy;"
        "from app.images.preprocess import find_preprocessor;"
        "from app.settings import Settings;"
        "spec = engine.TensorSpec((1, 3, 8, 8), numpy.dtype('float32'));"
        "find_preprocessor([engine.Port(name='in0', operand='0', spec=spec, aliases=())], None, Settings());"
        "print(*(name for name in sys.modules if name.endswith('ImagePlugin')))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"PIL.PngImagePlugin", "PIL.JpegImagePlugin"} <= set(found)
