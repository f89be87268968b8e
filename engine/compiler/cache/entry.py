"""File format of an executable: a header, facts as JSON, object code, and constants as kernels read them.

    offset  bytes  content
    0       8      magic
    8       4      version of this format
    12      4      CRC-32 of the header, computed with these four bytes zero
    16      32     the key: SHA-256 of all that the entry depends on
    48      8      offset of the constants; a multiple of PAGE
    56      8+4    length of the facts, checksum of them
    68      8+4    length of the code, checksum of it and of the zeros up to the constants
    80      8+4    length of the constants, checksum of them
    92             the facts, the code, zeros, the constants; nothing after them

Numbers are little-endian. A checksum is the CRC-32 of the CRC-32s of pieces of 8 MiB. The checksums cover every byte,
so a truncated or damaged file is detected before it is used.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from engine.compiler.cache.facts import from_facts, to_facts
from engine.compiler.executable import Executable
from engine.memory.blocks import PIECE_BYTES, TornError, read_block, side_by_side
from engine.tensor import Array

MAGIC: Final = b"pnnxcode"
VERSION: Final = 2
PAGE: Final = 4096
_HEADER: Final = struct.Struct("<8sII32sQQIQIQI")


class EntryError(Exception):
    """A file is not a valid entry; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class _Header:
    constants_at: int
    facts: tuple[int, int]
    code: tuple[int, int]
    constants: tuple[int, int]

    def pack(self, key: bytes, crc: int = 0) -> bytes:
        lengths = (*self.facts, *self.code, *self.constants)
        return _HEADER.pack(MAGIC, VERSION, crc, key, self.constants_at, *lengths)


@dataclass(frozen=True, slots=True)
class Content:
    """Content of an entry.

    Args:
        facts: as JSON has them, with the lengths of the parts of the code as ``code``.
        code: object code, in parts.
        constants: bytes that kernels read.
    """

    facts: dict[str, Any]
    code: tuple[bytes, ...]
    constants: Array


def content_of(executable: Executable) -> Content:
    """Return the content of an executable's entry."""
    return Content(to_facts(executable), executable.code, executable.constants)


def write(file: Any, key: str, executable: Executable) -> None:
    """Write the entry of an executable; see ``write_content``."""
    write_content(file, key, content_of(executable))


def write_content(file: Any, key: str, content: Content) -> None:
    """Write an entry.

    Args:
        file: open for writing in binary.
        key: 64 hexadecimal digits.

    Raises:
        OSError: the file cannot be written.
    """
    facts = json.dumps(content.facts, separators=(",", ":")).encode()
    code = b"".join(content.code)
    end = _HEADER.size + len(facts) + len(code)
    constants_at = -(-end // PAGE) * PAGE
    code += bytes(constants_at - end)
    constants = content.constants.data
    header = _Header(constants_at, *((len(part), checksum(part)) for part in (facts, code, constants)))
    crc = zlib.crc32(header.pack(bytes.fromhex(key)))
    for part in (header.pack(bytes.fromhex(key), crc), facts, code, constants):
        file.write(part)


def read(descriptor: int, key: str) -> tuple[Content, int]:
    """Return the content of an entry, and the size of its file in bytes.

    The file is copied before it is checked, so later changes to it have no effect.

    Args:
        descriptor: of the file, open for reading.

    Raises:
        EntryError: the file is not the entry of this key, or is damaged.
        OSError: it cannot be read.
    """
    content = _take(descriptor)
    return parse_content(content, key), content.size


def parse(content: Array, key: str, *, is_known: bool = False) -> Executable:
    """Return the executable of an entry in memory; see ``parse_content``."""
    return executable_of(parse_content(content, key, is_known=is_known))


def executable_of(content: Content) -> Executable:
    """Return the executable that an entry holds.

    Raises:
        EntryError: the content cannot be decoded.
    """
    try:
        return from_facts(content.facts, content.code, content.constants)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise EntryError(f"its facts cannot be decoded: {type(error).__name__}: {error}") from None


def parse_content(content: Array, key: str, *, is_known: bool = False) -> Content:
    """Return the content of an entry in memory.

    Args:
        content: the whole file, in page-aligned memory.
        is_known: skip the checksums because a hash has already verified the file.

    Raises:
        EntryError: it is not the entry of this key, or is damaged.
    """
    if content.size < _HEADER.size:
        raise EntryError("the entry is truncated")
    header = _parse(content, bytes.fromhex(key))
    start = _HEADER.size
    parts = []
    for name, (length, crc) in (("facts", header.facts), ("code", header.code), ("constants", header.constants)):
        part = content[start : start + length]
        if not is_known and checksum(part.data) != crc:
            raise EntryError(f"its {name} are damaged")
        parts.append(part)
        start += length
    facts, code, constants = parts
    try:
        known = dict(json.loads(bytes(facts)))
        return Content(known, tuple(_parts(bytes(code), known["code"])), constants)
    except (ValueError, KeyError, TypeError) as error:
        raise EntryError(f"its facts cannot be decoded: {type(error).__name__}: {error}") from None


def checksum(part: bytes | memoryview) -> int:
    """Return the CRC-32 of the CRC-32s of a part's pieces, computed by several threads."""
    view = memoryview(part)
    pieces = [view[at : at + PIECE_BYTES] for at in range(0, len(view), PIECE_BYTES)]
    return zlib.crc32(b"".join(crc.to_bytes(4, "little") for crc in side_by_side(zlib.crc32, pieces)))


def _take(descriptor: int) -> Array:
    size = os.fstat(descriptor).st_size
    if size < _HEADER.size:
        raise EntryError("the entry is truncated")
    try:
        return read_block(descriptor, size)
    except TornError:
        raise EntryError("the entry was truncated while it was read") from None


def _parse(content: Array, key: bytes) -> _Header:
    magic, version, crc, found, constants_at, *lengths = _HEADER.unpack_from(content.data)
    header = _Header(constants_at, *((lengths[k], lengths[k + 1]) for k in (0, 2, 4)))
    if magic != MAGIC or version != VERSION:
        raise EntryError(f"unsupported format: {magic!r} version {version}")
    if zlib.crc32(header.pack(found)) != crc:
        raise EntryError("its header is damaged")
    if found != key:
        raise EntryError("the entry belongs to another key")
    before = _HEADER.size + header.facts[0] + header.code[0]
    if before != constants_at or constants_at + header.constants[0] != content.size:
        raise EntryError(f"the entry is truncated or too long: {content.size} bytes")
    return header


def _parts(code: bytes, lengths: list[int]) -> Iterator[bytes]:
    at = 0
    for length in lengths:
        yield code[at : at + length]
        at += length
