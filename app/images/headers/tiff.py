"""Header scan of TIFF: the first directory, rewritten with the tags that decoding needs."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.images.headers.exif import ENTRY_BYTES, INTEGERS, ORIENTATION
from app.images.headers.header import U16BE, U16LE, U32BE, U32LE, Header, HeaderError, TooManyPartsError, number

_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _SAMPLES = 256, 257, 258, 259, 277
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
_MAX_ENTRIES: Final = 4096
_MAX_STRIPS: Final = 1 << 18
_MAX_VALUES: Final = 3 << 16
_STRIP_BYTES: Final = 256
_SLACK: Final = 1 << 16
_MAX_TILE: Final = 1 << 26
_MOST_BITS: Final = 64

Entry: TypeAlias = tuple[int, int, memoryview]  # type, number of values, their bytes


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
        start = at + 2 + index * ENTRY_BYTES
        tag, kind, many = number(u16, data, start), number(u16, data, start + 2), number(u32, data, start + 4)
        if tag in _KEPT_TAGS or tag == ORIENTATION:
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
    kind, _, value = entries.get(ORIENTATION, (0, 0, b""))
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
    rows = [data[at + 2 + index * ENTRY_BYTES :][:ENTRY_BYTES] for index in range(count)]
    kept = [row for row in rows if struct.unpack_from(f"{order}H", row)[0] in entries.keys() & _KEPT_TAGS]
    padding = len(data) % 2
    header = bytes(data[:4]) + struct.pack(f"{order}L", len(data) + padding)
    directory = bytes(padding) + struct.pack(f"{order}H", len(kept)) + b"".join(map(bytes, kept)) + bytes(4)
    return memoryview(header), data[8:], memoryview(directory)
