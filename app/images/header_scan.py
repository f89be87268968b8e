"""Header scan of pictures: format, size, orientation and the parts needed for decoding, before decoding.

A decoder receives only these parts: comments, profiles, thumbnails, text and further frames, which cost time or memory
and show nothing, are left out. Each format is scanned once, in time linear in the file size; files with more parts than
a picture needs are refused.

Decoders therefore never follow a tag to profiles, notes, nested directories, or the same bytes a thousand times.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _ORIENTATION, _SAMPLES = 256, 257, 258, 259, 274, 277
_TILE_WIDTH, _TILE_HEIGHT = 322, 323
# Offsets and byte counts of strips and tiles.
_OFFSETS: Final = (273, 324)
_COUNTS: Final = (279, 325)
# Type -> (its letter for struct and numpy, bytes).
_NUMBERS: Final = {1: ("B", 1), 3: ("H", 2), 4: ("L", 4)}
_SIZES: Final = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8}
# Photometry, fill order, strips, planes, fax options, predictor, colours, tiles, samples, JPEG tables, YCbCr.
_KEPT_TAGS: Final = frozenset(
    {_WIDTH, _HEIGHT, _BITS, _COMPRESSION, 262, 266, *_OFFSETS, _SAMPLES, 278, *_COUNTS, 284, 292, 293, 317, 320}
    | {_TILE_WIDTH, _TILE_HEIGHT, 332, 338, 339, 347, 529, 530, 531, 532}
)
# None, fax (three), LZW, JPEG, deflate (two), PackBits.
_COMPRESSIONS: Final = frozenset({1, 2, 3, 4, 5, 7, 8, 32946, 32773})
_ENTRY: Final = 12
_MAX_ENTRIES: Final = 4096
_MAX_STRIPS: Final = 1 << 18
_MAX_VALUES: Final = 3 << 16
_STRIP_BYTES: Final = 256
_SLACK: Final = 1 << 16
_MAX_TILE: Final = 1 << 26
_MOST_BITS: Final = 64

Entry = tuple[int, int, memoryview]

# Integer types, also signed, and their bytes: writers use others than the SHORT of the standard.
INTEGERS: Final = {1: 1, 3: 2, 4: 4, 6: 1, 8: 2, 9: 4}
_INLINE: Final = 4
_MAX_EXIF_ENTRIES: Final = 1024
_PREFIX: Final = b"Exif\0\0"


def scan_tiff(data: memoryview) -> Header:
    """Read the first directory; each byte of the file is used at most once."""
    order = "<" if bytes(data[:2]) == b"II" else ">"
    u16, u32 = (U16LE, U32LE) if order == "<" else (U16BE, U32BE)
    at = number(u32, data, 4)
    count = number(u16, data, at)
    if count > _MAX_ENTRIES:
        raise TooManyPartsError("has too many tags", _MAX_ENTRIES)
    entries: dict[int, Entry] = {}
    for index in range(count):
        start = at + 2 + index * _ENTRY
        tag, kind, many = number(u16, data, start), number(u16, data, start + 2), number(u32, data, start + 4)
        if tag in _KEPT_TAGS or tag == _ORIENTATION:
            entries[tag] = kind, many, _value(data, start, kind, many, u32)
    _check(entries, order, len(data))
    size = _first(entries, _WIDTH, order), _first(entries, _HEIGHT, order)
    return Header(
        format="TIFF",
        size=size,
        parts=_rewritten(data, entries, order, at),
        orientation=_orientation(entries, order),
        extra_bytes=_extra(entries, order, size, len(data)),
    )


def _value(data: memoryview, entry: int, kind: int, many: int, u32: struct.Struct) -> memoryview:
    length = _SIZES.get(kind, 1) * many
    at = entry + 8 if length <= 4 else number(u32, data, entry + 8)
    if at + length > len(data):
        raise HeaderError("a tag is beyond the end of the file")
    return data[at : at + length]


def _check(entries: Mapping[int, Entry], order: str, length: int) -> None:
    for tag, (_, many, _) in entries.items():
        limit = _MAX_STRIPS if tag in (*_OFFSETS, *_COUNTS) else _MAX_VALUES
        if many > limit:
            raise TooManyPartsError(f"has too many values of tag {tag}", limit)
    if _first(entries, _COMPRESSION, order, 1) not in _COMPRESSIONS:
        raise HeaderError("its compression is not supported")
    for tag in _COUNTS:
        if tag in entries and int(_numbers(entries[tag], order).sum(dtype=np.uint64)) > length + _SLACK:
            raise HeaderError("its strips are longer than the file")
    if _first(entries, _TILE_WIDTH, order, 1) * _first(entries, _TILE_HEIGHT, order, 1) > _MAX_TILE:
        raise TooManyPartsError("has a tile of too many pixels", _MAX_TILE)


def _numbers(entry: Entry, order: str) -> NDArray[Any]:
    kind, _, value = entry
    if kind not in _NUMBERS:
        raise HeaderError("a tag is of the wrong type")
    return np.frombuffer(value, f"{order}u{_NUMBERS[kind][1]}")


def _first(entries: Mapping[int, Entry], tag: int, order: str, usual: int | None = None) -> int:
    if tag in entries and (values := _numbers(entries[tag], order)).size:
        return int(values[0])
    if usual is None:
        raise HeaderError("it does not say its size")
    return usual


def _orientation(entries: Mapping[int, Entry], order: str) -> int:
    kind, _, value = entries.get(_ORIENTATION, (0, 0, b""))
    found = int.from_bytes(value[:size], "little" if order == "<" else "big") if (size := INTEGERS.get(kind)) else 1
    return found if 1 <= found <= 8 else 1


def _extra(entries: Mapping[int, Entry], order: str, size: tuple[int, int], length: int) -> int:
    """Return the bytes of the file in the decoder, its strips, and one unpacked strip (or the whole picture)."""
    strips = max((entries[tag][1] for tag in _OFFSETS if tag in entries), default=1)
    samples = _first(entries, _SAMPLES, order, 1)
    bits = min(_MOST_BITS, _first(entries, _BITS, order, 1) * samples)
    return 2 * length + strips * _STRIP_BYTES + math.ceil(size[0] * size[1] * bits / 8)


def _rewritten(data: memoryview, entries: Mapping[int, Entry], order: str, at: int) -> tuple[memoryview, ...]:
    count = number(U16LE if order == "<" else U16BE, data, at)
    rows = [data[at + 2 + index * _ENTRY :][:_ENTRY] for index in range(count)]
    kept = [row for row in rows if struct.unpack_from(f"{order}H", row)[0] in entries.keys() & _KEPT_TAGS]
    padding = len(data) % 2
    header = bytes(data[:4]) + struct.pack(f"{order}L", len(data) + padding)
    directory = bytes(padding) + struct.pack(f"{order}H", len(kept)) + b"".join(map(bytes, kept)) + bytes(4)
    return memoryview(header), data[8:], memoryview(directory)


def orientation_of(block: memoryview) -> int:
    """Return the orientation 1 to 8; 1 if there is none or it cannot be read."""
    if bytes(block[: len(_PREFIX)]) == _PREFIX:
        block = block[len(_PREFIX) :]
    start = bytes(block[:4])
    if start not in (b"II*\0", b"MM\0*"):
        return 1
    u16, u32 = (U16LE, U32LE) if start[:1] == b"I" else (U16BE, U32BE)
    order: Literal["little", "big"] = "little" if start[:1] == b"I" else "big"
    try:
        at = number(u32, block, 4)
        for index in range(min(number(u16, block, at), _MAX_EXIF_ENTRIES)):
            entry = at + 2 + index * _ENTRY
            size = INTEGERS.get(number(u16, block, entry + 2), _INLINE + 1)
            # Longer values are stored elsewhere.
            if number(u16, block, entry) == _ORIENTATION and size * number(u32, block, entry + 4) <= _INLINE:
                found = int.from_bytes(block[entry + 8 : entry + 8 + size], order)
                return found if 1 <= found <= 8 else 1
    except HeaderError:
        pass
    return 1


class HeaderError(Exception):
    """Damaged file; the message says where."""


class TooManyPartsError(Exception):
    """File with too many parts."""

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(f"{what}, expected at most {limit}")
        self.limit = limit


class Header(NamedTuple):
    """Result of a header scan.

    Args:
        format: Pillow's name of the format.
        size: (width, height) as stored.
        parts: bytes needed for decoding, in order.
        orientation: EXIF orientation, 1 to 8.
        pauses: offsets in the joined parts at which a decoder checks for cancellation.
        extra_bytes: memory for decoding beyond the picture itself.
    """

    format: str
    size: tuple[int, int]
    parts: tuple[memoryview, ...]
    orientation: int = 1
    pauses: tuple[int, ...] = ()
    extra_bytes: int = 0


def number(layout: struct.Struct, data: memoryview, at: int) -> int:
    """Return a number of a file.

    Raises:
        HeaderError: the file ends before it.
    """
    if at < 0 or at + layout.size > len(data):
        raise HeaderError("the file ends early")
    value: int = layout.unpack_from(data, at)[0]
    return value


U16LE, U16BE, U32LE, U32BE, I32LE = (struct.Struct(text) for text in ("<H", ">H", "<L", ">L", "<l"))


MAX_SCANS: Final = 100
_MAX_SEGMENTS: Final = 4096
# Bytes outside any segment, which some cameras write.
_MAX_GAP: Final = 4096
_ALONE: Final = frozenset({0x01, *range(0xD0, 0xD9)})
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_END, _SCAN, _APP0, _APP1, _APP14, _APP15, _COMMENT = 0xD9, 0xDA, 0xE0, 0xE1, 0xEE, 0xEF, 0xFE
_COEFFICIENT: Final = 2


def scan_jpeg(data: memoryview) -> Header:
    """Read the segments up to the first scan, and find the starts of all scans."""
    kept, orientation = [data[:2]], 1
    frame: memoryview | None = None
    at = 2
    for _ in range(_MAX_SEGMENTS):
        at, marker = _marker(data, at)
        if marker in _ALONE:
            continue
        if marker == _END:
            raise HeaderError("it has no scan")
        segment = data[at - 2 : at + number(U16BE, data, at)]
        if len(segment) < 4:
            raise HeaderError("a segment has no length")
        if marker == _SCAN:
            return _with_scans(data, at - 2, kept, frame, orientation)
        if marker in _FRAMES:
            if frame is not None:
                raise HeaderError("it has two frames")
            frame = segment
        if marker == _APP1 and bytes(segment[4:8]) == b"Exif" and orientation == 1:
            orientation = orientation_of(segment[4:])
        if _is_kept(marker, segment):
            kept.append(segment)
        at += len(segment) - 2
    raise TooManyPartsError("has too many segments", _MAX_SEGMENTS)


def _marker(data: memoryview, at: int) -> tuple[int, int]:
    """Return the offset after the next marker, and the marker."""
    window = bytes(data[at : at + _MAX_GAP])
    start = window.find(b"\xff")
    rest = window[start:].lstrip(b"\xff") if start >= 0 else b""
    if not rest or rest[0] == 0:
        raise HeaderError("a marker is missing")
    return at + len(window) - len(rest) + 1, rest[0]


def _is_kept(marker: int, segment: memoryview) -> bool:
    if marker in (_APP0, _APP14):
        return bytes(segment[4:9]) in (b"JFIF\0", b"Adobe")
    return not (_APP0 <= marker <= _APP15 or marker == _COMMENT)


def _with_scans(
    data: memoryview, start: int, kept: list[memoryview], frame: memoryview | None, orientation: int
) -> Header:
    if frame is None or len(frame) < 10 or len(frame) < 10 + 3 * frame[9]:
        raise HeaderError("it has no frame before its first scan")
    height, width, components = number(U16BE, frame, 5), number(U16BE, frame, 7), frame[9]
    rest = data[start:]
    of_scan = rest[4] if len(rest) > 4 else 0
    is_single = frame[1] & 3 in (0, 1) and of_scan == components
    before = sum(map(len, kept))
    pauses = () if is_single else tuple(before + place for place in _scans(rest))
    return Header(
        format="JPEG",
        size=(width, height),
        parts=(*kept, rest),
        orientation=orientation,
        pauses=pauses,
        extra_bytes=0 if is_single else _coefficients(width, height, frame),
    )


def _scans(rest: memoryview) -> list[int]:
    """Return the offsets of the scans; the marker's two bytes cannot occur within a scan."""
    text, places = bytes(rest), [0]
    while (found := text.find(b"\xff\xda", places[-1] + 2)) >= 0:
        places.append(found)
        if len(places) > MAX_SCANS:
            raise TooManyPartsError("has too many scans", MAX_SCANS)
    return places


def _coefficients(width: int, height: int, frame: memoryview) -> int:
    """Return the bytes of all coefficients, which successive scans share; whole blocks for any sampling."""
    sampling = [frame[11 + 3 * index] for index in range(frame[9])]
    across, down = (max((each >> 4 or 1) for each in sampling), max((each & 15 or 1) for each in sampling))
    blocks = 0
    for each in sampling:
        columns = -(-width // (8 * across)) * (each >> 4 or 1)
        rows = -(-height // (8 * down)) * (each & 15 or 1)
        blocks += columns * rows
    return blocks * 64 * _COEFFICIENT


_MAX_CHUNKS: Final = 65_536
_KEPT: Final = frozenset({b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"})
_HEAD: Final = struct.Struct(">L4s")  # length and type
_FRAME: Final = 12  # length, type and checksum


def scan_png(data: memoryview) -> Header:
    """Read the chunks; adjacent kept chunks form one part."""
    if bytes(data[12:16]) != b"IHDR":
        raise HeaderError("it does not begin with its header")
    size = number(U32BE, data, 16), number(U32BE, data, 20)
    spans, orientation = [(0, 8)], 1
    at, count = 8, 0
    while at + _FRAME <= len(data):
        count += 1
        if count > _MAX_CHUNKS:
            raise TooManyPartsError("has too many chunks", _MAX_CHUNKS)
        length, kind = _HEAD.unpack_from(data, at)
        end = at + _FRAME + length
        if kind in _KEPT:
            _add(spans, at, min(end, len(data)))
        elif kind == b"eXIf":
            orientation = orientation_of(data[at + 8 : end - 4])
        at = end
        if kind == b"IEND":
            break
    if at > len(data) or at + _FRAME > len(data):
        _add(spans, min(at, len(data)), len(data))  # truncated, which the decoder reports
    return Header(
        format="PNG", size=size, parts=tuple(data[start:end] for start, end in spans), orientation=orientation
    )


def _add(spans: list[tuple[int, int]], start: int, end: int) -> None:
    if spans[-1][1] == start:
        spans[-1] = spans[-1][0], end
    elif end > start:
        spans.append((start, end))


_OLD_HEADER: Final = 12
# Run-length compressions; the longest code for a pixel, a step to it and a run of one.
_RUNS: Final = frozenset({1, 2})
_MOST_CODE: Final = 6


def scan_bmp(data: memoryview) -> Header:
    """Read the size; a negative height means top to bottom."""
    if number(U32LE, data, 14) == _OLD_HEADER:
        size = number(U16LE, data, 18), number(U16LE, data, 20)
    else:
        size = abs(number(I32LE, data, 18)), abs(number(I32LE, data, 22))
    # Pillow collects compressed rows as bytes first.
    return Header(format="BMP", size=size, parts=(_needed(data, size),), extra_bytes=size[0] * size[1])


def _needed(data: memoryview, size: tuple[int, int]) -> memoryview:
    """Return the file without data behind the picture: codes that move nowhere could go on forever."""
    if number(U32LE, data, 14) == _OLD_HEADER or number(U32LE, data, 30) not in _RUNS:
        return data
    end = number(U32LE, data, 10) + _MOST_CODE * (size[0] + 1) * (size[1] + 1)
    return data[:end]


_HEADER: Final = 13
_IMAGE, _EXTENSION, _CONTROL = 0x2C, 0x21, 0xF9
_MAX_BLOCKS: Final = 65_536


def scan_gif(data: memoryview) -> Header:
    """Read the extensions before the first frame; ignore everything after it."""
    if len(data) < _HEADER:
        raise HeaderError("the file ends early")
    screen = number(U16LE, data, 6), number(U16LE, data, 8)
    at = _HEADER + _table(data[10])
    parts = [data[:at]]
    count = 0
    while True:
        kind = data[at] if at < len(data) else None
        if kind == _IMAGE:
            left, top, width, height = (number(U16LE, data, at + 1 + 2 * index) for index in range(4))
            size = max(screen[0], left + width), max(screen[1], top + height)
            return Header(format="GIF", size=size, parts=(*parts, data[at:]))
        if kind != _EXTENSION:
            raise HeaderError("it has no frame")
        start, at = at, at + 2
        while (length := data[at] if at < len(data) else 0) > 0:
            at += 1 + length
            count += 1
            if count > _MAX_BLOCKS:
                raise TooManyPartsError("has too many blocks before its first frame", _MAX_BLOCKS)
        at += 1
        if bytes(data[start + 1 : start + 2]) == bytes([_CONTROL]) and at - start <= 16:
            parts = [parts[0], data[start:at]]


def _table(flags: int) -> int:
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


_MAX_WEBP_CHUNKS: Final = 4096
_FIRST: Final = 12
# Two canvases of the decoder and the frame, four bytes a pixel each.
_CANVASES: Final = 12


def scan_webp(data: memoryview) -> Header:
    """Read the chunks."""
    size = _size(data)
    at, orientation = _FIRST, 1
    for _ in range(_MAX_WEBP_CHUNKS):
        if at + 8 > len(data):
            extra = _CANVASES * size[0] * size[1] + 2 * len(data)
            return Header(format="WEBP", size=size, parts=(data,), orientation=orientation, extra_bytes=extra)
        length = number(U32LE, data, at + 4)
        if bytes(data[at : at + 4]) == b"EXIF":
            orientation = orientation_of(data[at + 8 : at + 8 + length])
        at += 8 + length + (length & 1)
    raise TooManyPartsError("has too many chunks", _MAX_WEBP_CHUNKS)


def _size(data: memoryview) -> tuple[int, int]:
    kind = bytes(data[_FIRST : _FIRST + 4])
    if kind == b"VP8 ":
        return number(U16LE, data, 26) & 0x3FFF, number(U16LE, data, 28) & 0x3FFF
    if kind == b"VP8L":
        bits = number(U32LE, data, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8X":
        return (number(U32LE, data, 23) >> 8) + 1, (number(U32LE, data, 26) >> 8) + 1
    raise HeaderError("its first chunk is not a picture")


_BEGINNINGS: Final[tuple[tuple[bytes, int, str, Callable[[memoryview], Header]], ...]] = (
    (b"\xff\xd8\xff", 0, "JPEG", scan_jpeg),
    (b"\x89PNG\r\n\x1a\n", 0, "PNG", scan_png),
    (b"WEBP", 8, "WEBP", scan_webp),
    (b"GIF8", 0, "GIF", scan_gif),
    (b"II*\0", 0, "TIFF", scan_tiff),
    (b"MM\0*", 0, "TIFF", scan_tiff),
    (b"BM", 0, "BMP", scan_bmp),
)


def format_of(start: bytes) -> str | None:
    """Return the format of a file from its first twelve bytes, or None."""
    found = _find(start)
    return None if found is None else found[0]


def scan_header(data: memoryview) -> Header | None:
    """Return the header of a file, or None for an unknown format.

    Raises:
        HeaderError: the file is damaged.
        TooManyPartsError: it has too many parts.
    """
    found = _find(bytes(data[:12]))
    return None if found is None else found[1](data)


def _find(start: bytes) -> tuple[str, Callable[[memoryview], Header]] | None:
    if start[8:12] != b"WEBP" and start.startswith(b"RIFF"):
        return None  # audio or video
    for beginning, at, name, read in _BEGINNINGS:
        if start[at : at + len(beginning)] == beginning and (name != "WEBP" or start.startswith(b"RIFF")):
            return name, read
    return None
