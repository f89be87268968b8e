"""Reader of relocatable ELF object files, 64 bits, little-endian. Source: System V ABI, chapter 4."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from engine.errors import CompileError

X86_64: Final = 62
_MAGIC: Final = b"\x7fELF\x02\x01\x01"
_RELOCATABLE: Final = 1
_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_RELOCATION: Final = struct.Struct("<QQq")
# Types of sections, the flag of sections in memory at run time, and reserved section indices.
_SYMBOLS, _RELOCATIONS, _NOTHING = 2, 4, 8
_ALLOCATED: Final = 2
_UNDEFINED, _RESERVED = 0, 0xFF00
_GLOBAL: Final = 1


@dataclass(frozen=True, slots=True)
class Section:
    """Section header."""

    name_at: int
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int

    @property
    def is_loaded(self) -> bool:
        """Return whether the section takes memory at run time (SHF_ALLOC)."""
        return bool(self.flags & _ALLOCATED) and self.size > 0


@dataclass(frozen=True, slots=True)
class Symbol:
    """Symbol; ``section`` is None if it is defined elsewhere, and other files see it if it is global."""

    name: str
    section: int | None
    value: int
    is_global: bool


@dataclass(frozen=True, slots=True)
class Relocation:
    """Location in a section that holds an address: that of a symbol, plus a number."""

    section: int
    offset: int
    kind: int
    symbol: int
    addend: int


class ObjectFile:
    """Contents of an object file.

    Raises:
        CompileError: it is not a relocatable ELF file, or it is truncated.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        try:
            head = _HEADER.unpack_from(data)
            if not head[0].startswith(_MAGIC) or head[1] != _RELOCATABLE:
                raise CompileError(
                    "the data is not an object file", found=repr(data[:8]), expected="relocatable 64-bit ELF"
                )
            self.machine: int = head[2]
            self.sections = [self._section(head[6] + k * _SECTION.size) for k in range(head[12])]
            self.symbols = list(self._symbols())
            self.relocations = list(self._relocations())
        except (struct.error, IndexError, ValueError, OverflowError) as error:
            raise CompileError("the object file is damaged", found=str(error)) from None

    def content(self, section: Section) -> bytes:
        """Return the bytes of a section; zeros if it has none in the file."""
        if section.kind == _NOTHING:
            return bytes(section.size)
        found = self._data[section.offset : section.offset + section.size]
        if len(found) != section.size:
            raise CompileError("the object file is damaged", found=f"{len(self._data)} bytes")
        return found

    def _section(self, at: int) -> Section:
        name_at, kind, flags, _, offset, size, link, info, align, _ = _SECTION.unpack_from(self._data, at)
        return Section(name_at, kind, flags, offset, size, link, info, max(1, align))

    def _symbols(self) -> Iterator[Symbol]:
        for section in self.sections:
            if section.kind == _SYMBOLS:
                names = self.sections[section.link].offset
                for at in range(section.offset, section.offset + section.size, _SYMBOL.size):
                    name_at, info, _, index, value, _ = _SYMBOL.unpack_from(self._data, at)
                    start = names + name_at
                    name = self._data[start : self._data.index(b"\0", start)].decode()
                    is_here = _UNDEFINED < index < _RESERVED
                    yield Symbol(name, index if is_here else None, value, info >> 4 == _GLOBAL)

    def _relocations(self) -> Iterator[Relocation]:
        for section in self.sections:
            if section.kind == _RELOCATIONS and self.sections[section.info].is_loaded:
                for at in range(section.offset, section.offset + section.size, _RELOCATION.size):
                    offset, info, addend = _RELOCATION.unpack_from(self._data, at)
                    yield Relocation(section.info, offset, info & 0xFFFFFFFF, info >> 32, addend)
