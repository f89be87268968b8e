"""Header scan of JPEG: segments and scans."""

from __future__ import annotations

from typing import Final

from app.images.headers.exif import orientation_of
from app.images.headers.header import U16BE, Header, HeaderError, TooManyPartsError, number

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
