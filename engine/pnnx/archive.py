"""The weights file, a zip archive of stored members, read and written; members are never copied.

Plain zip and zip64 records may be mixed: the converter makes every member zip64, other tools do not. The directory
decides; the header of a member must agree with it. Nothing is extracted; a name that would leave a folder is refused
all the same. A leading slash is legal: ONNX imports have it.

Record layouts are those of PKWARE's APPNOTE.TXT 6.3, sections 4.3 and 4.5.3; all integers are little-endian. Members
are written stored, in the order given, without dates or alignment. Records are plain zip where their values fit, else
zip64.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final, TypeAlias

from engine.cancellation import cancellable_quick
from engine.errors import WeightsError, quoted
from engine.pnnx.files import kind_of_file
from engine.tensor import Array

# signature, version, flags, method, time, date, crc, packed size, size, name length, extra length
LOCAL: Final = struct.Struct("<4s5H3L2H")
LOCAL_MAGIC: Final = b"PK\3\4"
# signature, made by, version, flags, method, time, date, crc, packed size, size, name length, extra length,
# comment length, disk, internal attributes, external attributes, offset of the local header
CENTRAL: Final = struct.Struct("<4s6H3L5H2L")
CENTRAL_MAGIC: Final = b"PK\1\2"
# signature, disk, disk of the directory, records on this disk, records, directory size, its offset, comment length
END: Final = struct.Struct("<4s4H2LH")
END_MAGIC: Final = b"PK\5\6"
# signature, size of the rest, made by, version, disk, disk of the directory, records on this disk, records,
# directory size, its offset
END64: Final = struct.Struct("<4sQ2H2L4Q")
END64_MAGIC: Final = b"PK\6\6"
# signature, disk, offset of the zip64 end record, disks
LOCATOR64: Final = struct.Struct("<4sLQL")
LOCATOR64_MAGIC: Final = b"PK\6\7"
# id and length of an extra field
EXTRA: Final = struct.Struct("<2H")
ZIP64_ID: Final = 1

# A field that is full has its value in a zip64 record.
FULL16: Final = 0xFFFF
FULL32: Final = 0xFFFFFFFF

STORED: Final = 0
ENCRYPTED: Final = 0x2041
DESCRIPTOR: Final = 0x0008
UTF8: Final = 0x0800


Buffer: TypeAlias = bytes | memoryview

_MAX_COMMENT: Final = 0xFFFF
_ESCAPE = re.compile(r"(?:^|[/\\])\.\.(?:[/\\]|$)|^[A-Za-z]:[/\\]|\0")
# Sizes, offsets and counts of members from here on need zip64 records.
ZIP64_SIZE = FULL32
ZIP64_COUNT = FULL16
_PLAIN, _ZIP64 = 20, 45
# The first day a zip archive can express, so that equal graphs make equal archives.
_DATE: Final = 0x0021


@dataclass(frozen=True, slots=True)
class Member:
    """Location of a stored member's bytes.

    Args:
        offset: position of its first byte in the archive.
        size: its length in bytes.
        crc: its CRC-32 according to the directory.
    """

    offset: int
    size: int
    crc: int


@dataclass(frozen=True, slots=True)
class _Record:
    """Directory entry of a member, with zip64 values filled in."""

    name: str
    raw_name: bytes
    flags: int
    method: int
    crc: int
    size: int
    packed: int
    header: int
    disk: int


@dataclass(frozen=True, slots=True)
class _Directory:
    """Location of the directory, from an end record."""

    start: int
    size: int
    count: int


def read_directory(data: Buffer) -> dict[str, list[Member]]:
    """Return the members of an archive by name; those of one name in the order of the directory.

    Args:
        data: the whole archive.

    Raises:
        WeightsError: when the archive is damaged, truncated, compressed, encrypted or contradicts itself; placed at
            the member where there is one.
    """
    directory = _find_directory(data)
    members: dict[str, list[Member]] = {}
    spans: list[tuple[int, int, str]] = []
    for record in cancellable_quick(_read_records(data, directory)):
        try:
            member = _locate(data, record, directory.start)
        except WeightsError as error:
            raise error.at(quoted(record.name)) from None
        members.setdefault(record.name, []).append(member)
        spans.append((record.header, member.offset + member.size, record.name))
    _check_overlap(spans)
    return members


def check_crc(data: Buffer, name: str, member: Member) -> None:
    """Refuse a member whose bytes do not have the CRC-32 the directory states."""
    with memoryview(data) as view, view[member.offset : member.offset + member.size] as content:
        crc = zlib.crc32(content)
    if crc != member.crc:
        raise WeightsError("wrong CRC-32", where=quoted(name), found=f"{crc:08x}", expected=f"{member.crc:08x}")


def _find_directory(data: Buffer) -> _Directory:
    at = _find_end(data)
    _, disk, first_disk, on_disk, count, size, start, _ = END.unpack_from(data, at)
    limit, directory = at, _Directory(start, size, count)
    locator = at - LOCATOR64.size
    if locator >= 0 and data[locator : locator + 4] == LOCATOR64_MAGIC:
        limit, directory = _read_end64(data, locator)
    elif FULL16 in (disk, on_disk, count) or FULL32 in (size, start):
        raise WeightsError("the zip64 end record is missing")
    elif disk or first_disk or on_disk != count:
        raise WeightsError("the archive is one of several volumes")
    if directory.start + directory.size > limit or directory.count * CENTRAL.size > directory.size:
        found = f"{directory.count} records in {directory.size} bytes at {directory.start}"
        raise WeightsError("the directory has a wrong size", found=found, expected=f"all of it before byte {limit}")
    return directory


def _find_end(data: Buffer) -> int:
    """Return the end record, which is the last but for a comment of stated length."""
    floor = max(0, len(data) - END.size - _MAX_COMMENT)
    tail = bytes(data[floor:])
    at = tail.rfind(END_MAGIC)
    while at >= 0:
        if len(tail) - at >= END.size and at + END.size + END.unpack_from(tail, at)[-1] == len(tail):
            return floor + at
        at = tail.rfind(END_MAGIC, 0, at + len(END_MAGIC) - 1)
    if data[:4] == LOCAL_MAGIC:
        raise WeightsError("the archive is truncated", found="no end record")
    kind = kind_of_file(bytes(data[:64])) if len(data) else None
    raise WeightsError("not a zip archive", found=kind or f"{len(data):,} bytes without an end record")


def _read_end64(data: Buffer, locator: int) -> tuple[int, _Directory]:
    _, disk, at, disks = LOCATOR64.unpack_from(data, locator)
    if at + END64.size > locator or data[at : at + 4] != END64_MAGIC:
        raise WeightsError("the zip64 end record is not where its locator points", found=f"byte {at}")
    _, length, _, _, own_disk, first_disk, on_disk, count, size, start = END64.unpack_from(data, at)
    if at + 12 + length != locator:
        raise WeightsError("the zip64 end record has a wrong length", found=length, expected=locator - at - 12)
    if disk or own_disk or first_disk or disks > 1 or on_disk != count:
        raise WeightsError("the archive is one of several volumes")
    return at, _Directory(start, size, count)


def _read_records(data: Buffer, directory: _Directory) -> Iterator[_Record]:
    at, end = directory.start, directory.start + directory.size
    for index in range(directory.count):
        if at + CENTRAL.size > end or data[at : at + 4] != CENTRAL_MAGIC:
            raise WeightsError(
                "the directory is damaged", found=f"no record at byte {at}", expected=f"record {index + 1}"
            )
        fields = CENTRAL.unpack_from(data, at)
        name_end = at + CENTRAL.size + fields[10]
        extra_end = name_end + fields[11]
        if extra_end + fields[12] > end:
            raise WeightsError("the directory is damaged", found=f"a record at byte {at} that runs past its end")
        yield _make_record(fields, bytes(data[name_end - fields[10] : name_end]), bytes(data[name_end:extra_end]))
        at = extra_end + fields[12]
    if at != end:
        raise WeightsError("the directory is damaged", found=f"{end - at} bytes after its last record")


def _make_record(fields: tuple[int, ...], raw_name: bytes, extra: bytes) -> _Record:
    try:
        name = raw_name.decode("utf-8")
    except UnicodeDecodeError:
        raise WeightsError("a member's name is not UTF-8", found=quoted(repr(raw_name))) from None
    if _ESCAPE.search(name):
        raise WeightsError("a member's name would leave its folder", found=quoted(name))
    try:
        size, packed, header, disk = _widen(extra, fields[9], fields[8], fields[16], fields[13])
    except WeightsError as error:
        raise error.at(quoted(name)) from None
    return _Record(name, raw_name, fields[3], fields[4], fields[7], size, packed, header, disk)


def _widen(extra: bytes, size: int, packed: int, header: int = 0, disk: int = 0) -> tuple[int, int, int, int]:
    """Return the values with full ones replaced by those of the zip64 extra field, in this order."""
    values = [size, packed, header, disk]
    full = [index for index, most in enumerate((FULL32, FULL32, FULL32, FULL16)) if values[index] == most]
    if full:
        layout = struct.Struct("<" + "".join("L" if index == 3 else "Q" for index in full))
        block = _zip64_block(extra)
        if len(block) < layout.size:
            raise WeightsError("the zip64 sizes are missing", found=f"{len(block)} bytes", expected=layout.size)
        for index, value in zip(full, layout.unpack_from(block), strict=True):
            values[index] = value
    return values[0], values[1], values[2], values[3]


def _zip64_block(extra: bytes) -> bytes:
    at = 0
    while at + EXTRA.size <= len(extra):
        id, length = EXTRA.unpack_from(extra, at)
        at += EXTRA.size
        if id == ZIP64_ID:
            return extra[at : at + length]
        at += length
    return b""


def _locate(data: Buffer, record: _Record, limit: int) -> Member:
    """Return the location of the member's bytes, after checking its own header against the directory."""
    _check_stored(record)
    start = record.header + LOCAL.size
    if start > limit or data[record.header : record.header + 4] != LOCAL_MAGIC:
        raise WeightsError("the member's header is not where the directory says", found=f"byte {record.header}")
    fields = LOCAL.unpack_from(data, record.header)
    name_end = start + fields[9]
    offset = name_end + fields[10]
    if offset + record.size > limit:
        found, expected = f"bytes {offset} to {offset + record.size}", f"an end before {limit}"
        raise WeightsError("the member runs into the directory", found=found, expected=expected)
    if data[start:name_end] != record.raw_name:
        raise WeightsError("the member's header has another name", found=quoted(repr(bytes(data[start:name_end]))))
    _check_header(record, fields, bytes(data[name_end:offset]))
    return Member(offset, record.size, record.crc)


def _check_stored(record: _Record) -> None:
    if record.flags & ENCRYPTED:
        raise WeightsError("the member is encrypted", expected="stored bytes")
    if record.method != STORED:
        raise WeightsError("the member is compressed", found=f"method {record.method}", expected="method 0, stored")
    if record.size != record.packed:
        raise WeightsError("the member's sizes differ", found=record.packed, expected=record.size)
    if record.disk:
        raise WeightsError("the archive is one of several volumes")


def _check_header(record: _Record, fields: tuple[int, ...], extra: bytes) -> None:
    _, _, flags, method, _, _, crc, packed, size, *_ = fields
    size, packed, _, _ = _widen(extra, size, packed)
    found = (flags & ENCRYPTED, method, crc, size, packed)
    # A member that was written to a pipe has its sizes after its data, and zeros in its header.
    if record.flags & DESCRIPTOR and found[2:] == (0, 0, 0):
        found = (*found[:2], record.crc, record.size, record.packed)
    expected = (0, record.method, record.crc, record.size, record.packed)
    parts = ("encryption", "method", "CRC-32", "size", "packed size")
    for part, mine, theirs in zip(parts, found, expected, strict=True):
        if mine != theirs:
            raise WeightsError(f"the member's header contradicts the directory in {part}", found=mine, expected=theirs)


def _check_overlap(spans: list[tuple[int, int, str]]) -> None:
    end, owner = 0, ""
    for start, stop, name in sorted(spans):
        if start < end:
            raise WeightsError(
                "two members overlap", where=quoted(name), found=f"bytes of {quoted(owner)} from {start}"
            )
        end, owner = stop, name


def write_archive(out: BinaryIO, members: Iterable[tuple[str, Array]]) -> None:
    """Write members one after the other, and the directory behind them.

    Args:
        out: a binary file at its beginning.
        members: names and contents, each a flat uint8 array.

    Raises:
        WeightsError: for a name longer than an archive can hold.
    """
    directory, offset = [], 0
    for name, content in members:
        raw_name = name.encode("utf-8")
        if len(raw_name) > FULL16:
            raise WeightsError("a member's name is too long", found=quoted(name), expected=f"at most {FULL16} bytes")
        crc = zlib.crc32(content.data)
        header = _format_header(raw_name, crc, content.nbytes)
        out.write(header)
        out.write(content.data)
        directory.append(_format_record(raw_name, crc, content.nbytes, offset))
        offset += len(header) + content.nbytes
    out.writelines(directory)
    out.write(_format_end(len(directory), sum(map(len, directory)), offset))


def _flags(raw_name: bytes) -> int:
    return 0 if raw_name.isascii() else UTF8


def _extra(*values: int) -> bytes:
    """Return the zip64 field for the values that are full, in order; empty when none is."""
    full = [value for value in values if value >= ZIP64_SIZE]
    return EXTRA.pack(ZIP64_ID, 8 * len(full)) + struct.pack(f"<{len(full)}Q", *full) if full else b""


def _narrow(value: int) -> int:
    return FULL32 if value >= ZIP64_SIZE else value


def _format_header(raw_name: bytes, crc: int, size: int) -> bytes:
    extra = _extra(size, size)
    version, flags, narrow = _ZIP64 if extra else _PLAIN, _flags(raw_name), _narrow(size)
    fields = (version, flags, STORED, 0, _DATE, crc, narrow, narrow, len(raw_name), len(extra))
    return LOCAL.pack(LOCAL_MAGIC, *fields) + raw_name + extra


def _format_record(raw_name: bytes, crc: int, size: int, offset: int) -> bytes:
    extra = _extra(size, size, offset)
    version, flags, narrow = _ZIP64 if extra else _PLAIN, _flags(raw_name), _narrow(size)
    fields = (version, version, flags, STORED, 0, _DATE, crc, narrow, narrow, len(raw_name), len(extra))
    return CENTRAL.pack(CENTRAL_MAGIC, *fields, 0, 0, 0, 0, _narrow(offset)) + raw_name + extra


def _format_end(count: int, size: int, offset: int) -> bytes:
    if count < ZIP64_COUNT and size < ZIP64_SIZE and offset < ZIP64_SIZE:
        return END.pack(END_MAGIC, 0, 0, count, count, size, offset, 0)
    end64 = END64.pack(END64_MAGIC, END64.size - 12, _ZIP64, _ZIP64, 0, 0, count, count, size, offset)
    locator = LOCATOR64.pack(LOCATOR64_MAGIC, 0, offset + size, 1)
    return end64 + locator + END.pack(END_MAGIC, 0, 0, FULL16, FULL16, FULL32, FULL32, 0)
