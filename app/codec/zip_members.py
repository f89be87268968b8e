"""Reading of zip archives in memory: the part of PKWARE's APPNOTE that .npz files use, with all sizes bounded.

The standard library's reader creates an object for every directory entry before their number can be checked, and
decompresses all that a member contains, even beyond the declared size.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from app.memory.reservation import check

STORED: Final = 0
DEFLATED: Final = 8

_END: Final = struct.Struct("<4s4H2LH")
_END64: Final = struct.Struct("<4sQ2H2L4Q")
_LOCATOR: Final = struct.Struct("<4sLQL")
_ENTRY: Final = struct.Struct("<4s6H3L5H2L")
_LOCAL: Final = struct.Struct("<4s5H3L2H")
_MAX_COMMENT: Final = 0xFFFF
_OPEN16: Final = 0xFFFF
_OPEN32: Final = 0xFFFFFFFF
_ZIP64_EXTRA: Final = 1
_ENCRYPTED: Final = 0x1
_UTF8: Final = 0x800
_MAX_NAME: Final = 255
# Bytes passed to the decompressor at once, and the most that it may return at once.
_FED: Final = 1 << 16
_TAKEN: Final = 1 << 20


class ZipError(Exception):
    """The archive is damaged or of an unsupported kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """File of an archive.

    Args:
        method: compression method.
        packed: view of its compressed bytes.
        size, checksum: declared size and CRC-32 of the decompressed bytes.
    """

    name: str
    method: int
    packed: memoryview
    size: int
    checksum: int


def members(archive: memoryview, limit: int) -> list[Member]:
    """Return the files of an archive, at most limit + 1 (one more shows that there are too many).

    Raises:
        ZipError: not an archive, damaged, or a member is encrypted.
    """
    try:
        return list(_members(archive, limit))
    except struct.error:
        raise ZipError("the archive is truncated") from None


def unpack(member: Member) -> memoryview:
    """Return the bytes of a member: a view if stored, otherwise decompressed, never more than declared.

    Raises:
        ZipError: it is damaged, or its size differs from the declared one.
        DeadlineExceededError: the request was cancelled.
    """
    data = member.packed if member.method == STORED else _inflate(member)
    if len(data) != member.size or zlib.crc32(data) != member.checksum:
        raise ZipError(f"'{member.name}' does not match its checksum")
    return data


def _members(archive: memoryview, limit: int) -> Iterator[Member]:
    count, at = _directory(archive)
    for _ in range(min(count, limit + 1)):
        fields = _ENTRY.unpack_from(archive, at)
        if fields[0] != b"PK\x01\x02":
            raise ZipError("the archive's directory is damaged")
        flags, method, checksum = fields[3], fields[4], fields[7]
        name_length, extra_length, comment_length = fields[10:13]
        start = at + _ENTRY.size
        name = _name(archive[start : start + name_length], flags)
        extra = archive[start + name_length : start + name_length + extra_length]
        size, packed, offset = _wide((fields[9], fields[8], fields[16]), extra)
        if flags & _ENCRYPTED:
            raise ZipError(f"'{name}' is encrypted")
        view = _packed(archive, offset, packed, name)
        yield Member(name=name, method=method, packed=view, size=size, checksum=checksum)
        at = start + name_length + extra_length + comment_length


def _directory(archive: memoryview) -> tuple[int, int]:
    """Return the number of entries of the directory, and where it starts."""
    tail = bytes(archive[-(_END.size + _MAX_COMMENT) :])
    found = tail.rfind(b"PK\x05\x06")
    if found < 0:
        raise ZipError("the archive has no directory")
    end = len(archive) - len(tail) + found
    _, _, _, _, count, _, start, _ = _END.unpack_from(archive, end)
    at = end - _LOCATOR.size
    if (count == _OPEN16 or start == _OPEN32) and at >= 0:
        signature, _, record, _ = _LOCATOR.unpack_from(archive, at)
        if signature == b"PK\x06\x07" and record <= at:
            *_, count, _, start = _END64.unpack_from(archive, record)
    if start > end:
        raise ZipError("the archive's directory is beyond its end")
    return count, start


def _name(raw: memoryview, flags: int) -> str:
    if len(raw) > _MAX_NAME:
        raise ZipError(f"found a name of {len(raw)} bytes, expected at most {_MAX_NAME}")
    try:
        return bytes(raw).decode("utf-8" if flags & _UTF8 else "cp437")
    except UnicodeDecodeError:
        raise ZipError("found a name that is not text") from None


def _wide(values: tuple[int, int, int], extra: memoryview) -> tuple[int, int, int]:
    """Return sizes and offset; those that do not fit four bytes come from the zip64 field."""
    while len(extra) >= 4 and _OPEN32 in values:
        kind, length = struct.unpack_from("<2H", extra)
        if kind == _ZIP64_EXTRA:
            wide = iter(struct.unpack_from(f"<{values.count(_OPEN32)}Q", extra[4 : 4 + length]))
            size, packed, offset = (next(wide) if value == _OPEN32 else value for value in values)
            return size, packed, offset
        extra = extra[4 + length :]
    return values


def _packed(archive: memoryview, offset: int, size: int, name: str) -> memoryview:
    if offset + size > len(archive):
        raise ZipError(f"'{name}' is beyond the end of the archive")
    fields = _LOCAL.unpack_from(archive, offset)
    start = offset + _LOCAL.size + fields[9] + fields[10]
    view = archive[start : start + size]
    if fields[0] != b"PK\x03\x04" or len(view) != size:
        raise ZipError(f"'{name}' is not at the offset in the directory")
    return view


def _inflate(member: Member) -> memoryview:
    room = np.empty(member.size, np.uint8).data
    filled = 0
    for piece in _pieces(member.packed):
        check()
        if filled + len(piece) > member.size:
            raise ZipError(f"'{member.name}' is larger than its declared size")
        room[filled : filled + len(piece)] = piece
        filled += len(piece)
    return room[:filled]


def _pieces(packed: memoryview) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        for start in range(0, len(packed), _FED):
            fed = bytes(packed[start : start + _FED])
            while fed and not unpacker.eof:
                yield unpacker.decompress(fed, _TAKEN)
                fed = unpacker.unconsumed_tail
        while not unpacker.eof and (piece := unpacker.decompress(b"", _TAKEN)):
            yield piece
    except zlib.error as exc:
        raise ZipError(str(exc)) from None
