"""The weights file, written: stored members in the order given, no dates, no alignment.

Records are plain zip wherever their values fit and zip64 where they do not.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import BinaryIO, Final

from engine.errors import WeightsError
from engine.pnnx import records
from engine.pnnx.quotation import quoted
from engine.pnnx.records import CENTRAL, END, END64, EXTRA, FULL16, FULL32, LOCAL, LOCATOR64
from engine.tensor import Array

# From here on sizes and offsets go to zip64 records, as do counts of members.
ZIP64_SIZE = FULL32
ZIP64_COUNT = FULL16
_PLAIN, _ZIP64 = 20, 45
# The first day a zip archive can express: equal graphs make equal archives.
_DATE: Final = 0x0021


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
    return 0 if raw_name.isascii() else records.UTF8


def _extra(*values: int) -> bytes:
    """The zip64 field for the values that are full, in order; empty when none is."""
    full = [value for value in values if value >= ZIP64_SIZE]
    return EXTRA.pack(records.ZIP64_ID, 8 * len(full)) + struct.pack(f"<{len(full)}Q", *full) if full else b""


def _narrow(value: int) -> int:
    return FULL32 if value >= ZIP64_SIZE else value


def _format_header(raw_name: bytes, crc: int, size: int) -> bytes:
    extra = _extra(size, size)
    version, flags, narrow = _ZIP64 if extra else _PLAIN, _flags(raw_name), _narrow(size)
    fields = (version, flags, records.STORED, 0, _DATE, crc, narrow, narrow, len(raw_name), len(extra))
    return LOCAL.pack(records.LOCAL_MAGIC, *fields) + raw_name + extra


def _format_record(raw_name: bytes, crc: int, size: int, offset: int) -> bytes:
    extra = _extra(size, size, offset)
    version, flags, narrow = _ZIP64 if extra else _PLAIN, _flags(raw_name), _narrow(size)
    fields = (version, version, flags, records.STORED, 0, _DATE, crc, narrow, narrow, len(raw_name), len(extra))
    return CENTRAL.pack(records.CENTRAL_MAGIC, *fields, 0, 0, 0, 0, _narrow(offset)) + raw_name + extra


def _format_end(count: int, size: int, offset: int) -> bytes:
    if count < ZIP64_COUNT and size < ZIP64_SIZE and offset < ZIP64_SIZE:
        return END.pack(records.END_MAGIC, 0, 0, count, count, size, offset, 0)
    end64 = END64.pack(records.END64_MAGIC, END64.size - 12, _ZIP64, _ZIP64, 0, 0, count, count, size, offset)
    locator = LOCATOR64.pack(records.LOCATOR64_MAGIC, 0, offset + size, 1)
    return end64 + locator + END.pack(records.END_MAGIC, 0, 0, FULL16, FULL16, FULL32, FULL32, 0)
