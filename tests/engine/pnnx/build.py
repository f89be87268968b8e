"""PNNX file pairs made from Python data, byte by byte and without the code under test.

``pair(folder, lines, members)`` writes a model; ``lines`` are operator lines, the header is counted from them.
``archive`` lays members out as the converter does (zip64 for all of them), or plainly; each part of an ``Entry`` can be
made to lie.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

FULL = 0xFFFFFFFF
# What the converter writes for a model without attributes, and what a plain zip tool does.
EMPTY_ZIP64 = bytes.fromhex(
    "504b06062c000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "504b0607000000000000000000000000" + "01000000" + "504b0506ffffffffffffffffffffffffffffffff0000"
)
EMPTY_ZIP = b"PK\5\6" + bytes(18)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A member of an archive; None means the truth."""

    name: str | bytes
    data: bytes = b""
    flags: int = 0
    method: int = 0
    crc: int | None = None
    size: int | None = None
    packed: int | None = None
    header: int | None = None
    disk: int = 0
    local_name: bytes | None = None
    local_crc: int | None = None
    local_size: int | None = None
    extra: bytes | None = None
    local_extra: bytes | None = None
    local_flags: int | None = None
    local_method: int | None = None

    @property
    def raw_name(self) -> bytes:
        return self.name if isinstance(self.name, bytes) else self.name.encode()


def param(lines: Iterable[str], *, operators: int | None = None, operands: int | None = None) -> bytes:
    """The text file of these operator lines."""
    rows = list(lines)
    made = sum(int(row.split()[3]) for row in rows) if operands is None else operands
    header = f"7767517\n{len(rows) if operators is None else operators} {made}\n"
    return (header + "".join(f"{row}\n" for row in rows)).encode()


def archive(entries: Iterable[Entry], *, zip64: bool = True) -> bytes:
    """A weights file of these members."""
    body, directory, count = b"", b"", 0
    for entry in entries:
        directory += _record(entry, len(body), zip64)
        body += _local(entry, zip64) + entry.data
        count += 1
    return body + directory + (_end64 if zip64 else _end)(count, len(directory), len(body))


def members(contents: Mapping[str, bytes], *, zip64: bool = True) -> bytes:
    """A weights file of honest members."""
    return archive((Entry(name=name, data=data) for name, data in contents.items()), zip64=zip64)


def pair(
    folder: Path, lines: Iterable[str], contents: Mapping[str, bytes] | None = None, *, zip64: bool = True
) -> Path:
    """A model in a folder; its text file. Without contents there is no weights file."""
    return save(folder, param(lines), None if contents is None else members(contents, zip64=zip64))


def save(folder: Path, text: bytes, weights: bytes | None = None) -> Path:
    """Two files from their bytes; the text file."""
    path = folder / "model.pnnx.param"
    for file, data in ((path, text), (folder / "model.pnnx.bin", weights)):
        # A graph read before may still be mapped from the file that was here.
        file.unlink(missing_ok=True)
        if data is not None:
            file.write_bytes(data)
    return path


def _crc(entry: Entry) -> int:
    return zlib.crc32(entry.data) if entry.crc is None else entry.crc


def _local(entry: Entry, zip64: bool) -> bytes:
    size = len(entry.data) if entry.local_size is None else entry.local_size
    name = entry.raw_name if entry.local_name is None else entry.local_name
    crc = _crc(entry) if entry.local_crc is None else entry.local_crc
    flags = entry.flags if entry.local_flags is None else entry.local_flags
    method = entry.method if entry.local_method is None else entry.local_method
    extra = struct.pack("<2H3QL", 1, 28, size, size, 0, 0) if zip64 else b""
    extra = extra if entry.local_extra is None else entry.local_extra
    shown = FULL if zip64 else size
    fields = (0, flags, method, 0, 0, crc, shown, shown, len(name), len(extra))
    return struct.pack("<4s5H3L2H", b"PK\3\4", *fields) + name + extra


def _record(entry: Entry, offset: int, zip64: bool) -> bytes:
    size = len(entry.data) if entry.size is None else entry.size
    packed = size if entry.packed is None else entry.packed
    header = offset if entry.header is None else entry.header
    extra = struct.pack("<2H3QL", 1, 28, size, packed, header, entry.disk) if zip64 else b""
    extra = extra if entry.extra is None else entry.extra
    shown = (FULL, FULL, 0xFFFF, FULL) if zip64 else (packed, size, entry.disk, header)
    fields = (0, 0, entry.flags, entry.method, 0, 0, _crc(entry), *shown[:2], len(entry.raw_name), len(extra))
    return struct.pack("<4s6H3L5H2L", b"PK\1\2", *fields, 0, shown[2], 0, 0, shown[3]) + entry.raw_name + extra


def _end(count: int, size: int, offset: int) -> bytes:
    return struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count, count, size, offset, 0)


def _end64(count: int, size: int, offset: int) -> bytes:
    end64 = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 0, 0, 0, 0, count, count, size, offset)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, offset + size, 1)
    return end64 + locator + struct.pack("<4s4H2LH", b"PK\5\6", *(0xFFFF,) * 4, FULL, FULL, 0)
