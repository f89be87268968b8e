"""Pictures made to cost time or memory: each class is refused, or decoded without what it is made of."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image, ImageOps

from app.errors import DeadlineExceededError, RequestTooLargeError, ServiceError
from app.images.decode import OpenPicture, Picture
from app.images.headers import format_of, scan_header
from app.images.headers.exif import orientation_of
from app.images.parts_file import PartsFile
from app.images.preprocess import resized
from app.memory.reservation import MemoryBudget
from tests.app.pictures import encoded, gradient

WHITE = (255, 255, 255)
FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF")


def decode(data: bytes, max_pixels: int = 10**7) -> np.ndarray:
    opened = OpenPicture(Picture(data=data), max_pixels=max_pixels)
    return np.asarray(opened.decode("RGB", WHITE, opened.size))


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">L", len(data)) + kind + data + struct.pack(">L", zlib.crc32(kind + data))


def png_with(*chunks: bytes, size: tuple[int, int] = (6, 4)) -> bytes:
    plain = encoded(gradient(*size))
    return plain[:33] + b"".join(chunks) + plain[33:]


def segment(marker: int, data: bytes) -> bytes:
    return bytes([0xFF, marker]) + struct.pack(">H", len(data) + 2) + data


def jpeg_with(*segments: bytes) -> bytes:
    plain = encoded(gradient(6, 4), "JPEG", quality=95)
    return plain[:2] + b"".join(segments) + plain[2:]


def scans(count: int, size: tuple[int, int] = (64, 64)) -> bytes:
    """A progressive JPEG with ever more scans that refine nothing."""
    plain = encoded(gradient(*size, "L"), "JPEG", progressive=True)
    last = plain.rindex(b"\xff\xda")
    header = plain[last : last + 2 + struct.unpack(">H", plain[last + 2 : last + 4])[0]]
    return plain[:-2] + (header + b"\0\0") * count + b"\xff\xd9"


def tags(entries: list[tuple[int, int, int, int]], pixels: bytes) -> bytes:
    """A TIFF of those tags: number, type, count, value."""
    rows = b"".join(struct.pack("<2H2L", *entry) for entry in sorted(entries))
    return b"II*\0" + struct.pack("<L", 8) + struct.pack("<H", len(entries)) + rows + bytes(4) + pixels


def exif(orientation: int) -> Image.Exif:
    block = Image.Exif()
    block[0x0112] = orientation
    return block


@pytest.mark.parametrize("format", FORMATS)
def test_a_header_says_what_pillow_finds(format: str) -> None:
    data = encoded(gradient(9, 5), format)
    found = scan_header(memoryview(data))
    assert found is not None and (found.format, found.size) == (format, Image.open(io.BytesIO(data)).size)
    assert format_of(data[:12]) == format


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_format_that_has_an_orientation_is_turned_by_it(format: str, orientation: int) -> None:
    options = {"lossless": True} if format == "WEBP" else {"quality": 100, "subsampling": 0} if format == "JPEG" else {}
    data = encoded(gradient(16, 8), format, exif=exif(orientation), **options)
    reference = Image.open(io.BytesIO(encoded(gradient(16, 8), "PNG", exif=exif(orientation))))
    expected = np.asarray(ImageOps.exif_transpose(reference).convert("RGB"))
    np.testing.assert_allclose(decode(data).astype(int), expected, atol=6 if format == "JPEG" else 0)


# Types of integers in TIFF 6.0, section 2, and their letters for struct.
@pytest.mark.parametrize(("kind", "letter"), [(1, "B"), (3, "H"), (4, "L"), (6, "b"), (8, "h"), (9, "l")])
@pytest.mark.parametrize("order", ["<", ">"])
def test_an_orientation_may_be_of_any_integer_type(kind: int, letter: str, order: str) -> None:
    value = struct.pack(f"{order}{letter}", 6).ljust(4, b"\0")
    entry = struct.pack(f"{order}HHHL", 1, 0x0112, kind, 1) + value + bytes(4)
    block = (b"II" if order == "<" else b"MM") + struct.pack(f"{order}HL", 42, 8) + entry
    assert orientation_of(memoryview(block)) == orientation_of(memoryview(b"Exif\0\0" + block)) == 6
    data = bytearray(encoded(gradient(16, 8), "TIFF", exif=exif(6)))
    at = data.index(struct.pack("<HHL", 0x0112, 3, 1))
    data[at : at + 12] = struct.pack("<HHL", 0x0112, kind, 1) + struct.pack(f"<{letter}", 6).ljust(4, b"\0")
    assert scan_header(memoryview(bytes(data))).orientation == 6  # type: ignore[union-attr]


@pytest.mark.parametrize(("kind", "count", "value"), [(2, 1, 6), (5, 1, 6), (4, 2, 6), (3, 0, 0), (4, 1, 9)])
def test_an_orientation_that_is_no_number_from_1_to_8_turns_nothing(kind: int, count: int, value: int) -> None:
    entry = struct.pack("<HHHLL", 1, 0x0112, kind, count, value) + bytes(4)
    assert orientation_of(memoryview(b"II*\0" + struct.pack("<L", 8) + entry)) == 1


@pytest.mark.parametrize(
    "start", [b"RIFF\0\0\0\0WAVEfmt ", b"RIFF\0\0\0\0AVI LIST", b"RIFF", b"MM\0\x2b", b"OggS", b""]
)
def test_what_only_looks_like_a_picture_is_none(start: bytes) -> None:
    assert format_of(start[:12]) is None


def check_that_little_is_decoded(data: bytes, expected: NDArray[np.uint8]) -> None:
    tracemalloc.start()
    try:
        found = decode(data)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "extra",
    [
        [chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(10**6)))] * 40,
        [chunk(b"iTXt", b"a\0\1\0\0\0" + zlib.compress(bytes(10**6)))] * 40,
        [chunk(b"tEXt", b"a\0" + b"x" * 1000)] * 1000,
        [chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(10**6)))],
        [chunk(b"acTL", struct.pack(">2L", 2**31 - 1, 0))],
        [chunk(b"eXIf", b"MM\0*" + struct.pack(">LH", 8, 65535) + struct.pack(">2H2L", 1, 7, 10**6, 0) * 2000)],
        [chunk(b"prVt", b"")] * 5000,
    ],
    ids=["ztxt", "itxt", "text", "profile", "frames", "exif", "chunks"],
)
def test_chunks_that_show_nothing_are_not_handed_to_the_decoder(extra: list[bytes]) -> None:
    check_that_little_is_decoded(png_with(*extra), np.asarray(gradient(6, 4)))


@pytest.mark.parametrize(
    "extra",
    [
        [segment(0xFE, bytes(60_000))] * 500,
        [segment(0xE2, b"MPF\0II*\0" + bytes(200))],
        [segment(0xE1, b"Exif\0\0II*\0" + struct.pack("<LH", 8, 5000) + struct.pack("<2H2L", 1, 7, 60_000, 0) * 5000)],
        [segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + b"<" * 60_000)] * 20,
        [segment(0xE2, b"ICC_PROFILE\0\1\2" + bytes(60_000))] * 200,
        [b"\xff" * 1000],
    ],
    ids=["comments", "pictures", "exif", "xmp", "profile", "padding"],
)
def test_segments_that_show_nothing_are_not_handed_to_the_decoder(extra: list[bytes]) -> None:
    check_that_little_is_decoded(jpeg_with(*extra), decode(jpeg_with()))


def test_a_progressive_picture_is_decoded_as_ever() -> None:
    data = encoded(gradient(64, 48), "JPEG", progressive=True)
    np.testing.assert_array_equal(decode(data), np.asarray(Image.open(io.BytesIO(data))))


@pytest.mark.parametrize("count", [100, 26_000])
def test_more_scans_than_any_picture_needs_are_refused_before_one_is_decoded(count: int) -> None:
    with pytest.raises(RequestTooLargeError, match="has too many scans, expected at most 100"):
        decode(scans(count))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (jpeg_with(*[segment(0xFE, b"")] * 5000), "too many segments"),
        (png_with(*[chunk(b"prVt", b"")] * 70_000), "too many chunks"),
        (b"GIF89a" + bytes(7) + b"!\xfe" + b"\1x" * 70_000 + b"\0", "too many blocks"),
        (b"RIFF\0\0\0\0WEBPVP8X" + bytes(36) + b"ANMF\0\0\0\0" * 5000, "too many chunks"),
        (tags([(256, 4, 1, 4), (257, 4, 1, 4), (273, 4, 2**20, 0)], bytes(2**22)), "too many values of tag 273"),
        (tags([(256, 4, 1, 4), (257, 4, 1, 4), (258, 3, 2**20, 0)], bytes(2**22)), "too many values of tag 258"),
        (tags([(256, 4, 1, 9), (257, 4, 1, 9), (322, 4, 1, 2**20), (323, 4, 1, 2**20)], b""), "a tile of too many"),
    ],
    ids=["jpeg", "png", "gif", "webp", "strips", "values", "tile"],
)
def test_more_parts_than_any_picture_has_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(RequestTooLargeError, match=message):
        decode(data)


@pytest.mark.parametrize("method", [6, 50000, 50001, 34712, 34925])
def test_tiffs_packed_in_odd_ways_are_refused(method: int) -> None:
    with pytest.raises(ServiceError, match="its compression is not supported"):
        decode(tags([(256, 4, 1, 4), (257, 4, 1, 4), (259, 3, 1, method), (273, 4, 1, 8), (279, 4, 1, 4)], bytes(9)))


def test_strips_that_are_the_same_bytes_over_and_over_are_refused() -> None:
    many = 2**14
    entries = [(256, 4, 1, 4), (257, 4, 1, many), (273, 4, many, 74), (278, 4, 1, 1), (279, 4, many, 74 + 4 * many)]
    data = tags(entries, struct.pack(f"<{many}L", *[8] * many) + struct.pack(f"<{many}L", *[2**16] * many))
    with pytest.raises(ServiceError, match="its strips are longer than the file"):
        decode(data)


@pytest.mark.parametrize("compression", [None, "tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg"])
def test_tiffs_are_read_from_their_rewritten_directory(compression: str | None) -> None:
    options = {} if compression is None else {"compression": compression}
    data = encoded(gradient(40, 30), "TIFF", **options)
    tolerance = 30 if compression == "jpeg" else 0
    np.testing.assert_allclose(decode(data).astype(int), np.asarray(gradient(40, 30)), atol=tolerance)


@pytest.mark.parametrize("size", [(1, 70_000), (70_000, 1)])
def test_pictures_with_a_side_that_no_picture_has_are_refused(size: tuple[int, int]) -> None:
    with pytest.raises(RequestTooLargeError, match="too long a side: .*, expected at most 65535"):
        decode(encoded(Image.new("L", size)))


def test_a_long_thin_picture_is_resized_columns_first_and_looks_the_same() -> None:
    picture = Image.effect_noise((8, 60_000), 50).convert("RGB")
    box, way = (1.5, 10.0, 7.0, 59_000.5), Image.Resampling.BILINEAR
    found, expected = resized(picture, (640, 64), way, box), picture.resize((640, 64), way, box=box)
    np.testing.assert_allclose(np.asarray(found).astype(int), np.asarray(expected), atol=1)


@pytest.mark.parametrize("mode", ["P", "LA", "I;16", "RGBA"])
def test_strips_of_a_large_picture_are_converted_as_the_whole(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = gradient(40, 33).convert("I" if mode == "I;16" else mode)
    data = encoded(picture.convert("I;16") if mode == "I;16" else picture, "PNG")
    whole = decode(data)
    monkeypatch.setattr("app.images.decode._STRIP", 90)
    np.testing.assert_array_equal(decode(data), whole)


@pytest.mark.parametrize(
    ("format", "options"), [("PNG", {}), ("JPEG", {"progressive": True}), ("GIF", {}), ("BMP", {})]
)
def test_a_decoder_is_stopped_when_no_request_waits(format: str, options: dict[str, bool]) -> None:
    data = encoded(Image.effect_noise((300, 300), 90), format, **options)
    budget = MemoryBudget(10**9)
    answers = iter([False] * 8)
    reservation = budget.open()
    with reservation, reservation.working(lambda: next(answers, True)), pytest.raises(DeadlineExceededError):
        decode(data)
        decode(data)


@given(st.lists(st.binary(max_size=9), max_size=6), st.lists(st.tuples(st.integers(0, 20), st.integers(-1, 12))))
def test_an_excerpt_is_a_file_of_its_parts(parts: list[bytes], steps: list[tuple[int, int]]) -> None:
    excerpt, expected = PartsFile([memoryview(part) for part in parts]), io.BytesIO(b"".join(parts))
    for place, size in steps:
        assert excerpt.seek(place) == expected.seek(place)
        assert excerpt.read(size) == expected.read(size)
        assert min(excerpt.tell(), 60) == expected.tell()


@given(st.data(), st.sampled_from([encoded(gradient(9, 7), name) for name in FORMATS] + [scans(3, (16, 16))]))
def test_a_header_of_anything_ends_in_words(data: st.DataObject, seed: bytes) -> None:
    mutated = bytearray(seed)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, min(len(seed), 200) - 1))
        mutated[place : place + 4] = data.draw(st.sampled_from([b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff"]))
    try:
        decode(bytes(mutated), max_pixels=10_000)
    except ServiceError as error:
        assert error.status in (400, 413)


def runs(codes: bytes, size: tuple[int, int] = (8, 4)) -> bytes:
    """A BMP of runs of one byte a pixel."""
    palette = bytes(256 * 4)
    header = struct.pack("<LllHHLLllLL", 40, *size, 1, 8, 1, len(codes), 0, 0, 256, 0)
    return (
        b"BM" + struct.pack("<LHHL", 54 + len(palette) + len(codes), 0, 0, 54 + len(palette)) + header + palette + codes
    )


@pytest.mark.parametrize("codes", [b"\0\2\0\0" * 2_000_000, b"\0\0" * 4_000_000, b"\0\3" * 4_000_000])
def test_runs_that_lead_nowhere_are_not_followed_to_their_end(codes: bytes) -> None:
    found = scan_header(memoryview(runs(codes)))
    assert found is not None
    assert sum(map(len, found.parts)) < 2000


def test_runs_are_read() -> None:
    picture = runs(b"\x08\1\0\0" * 4 + b"\0\1")
    assert decode(picture).shape == (4, 8, 3)
