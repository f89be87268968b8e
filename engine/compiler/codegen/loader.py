"""Loader and linker of object code without LLVM, so that a start from the cache does not import it.

Generated code consists of functions that call each other, constants, and a few functions of the C library
(runtime/team/). All of it is loaded into one block, so that every address is a relative distance. The block is written
once, then made executable and read-only.
Object files are relocatable 64-bit little-endian ELF. Source: System V ABI, chapter 4.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
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
# Relocations with a 32-bit relative distance: to data, and to a called function.
_NEAR: Final = frozenset({2, 4})
# Jump through the address that follows.
_STUB: Final = struct.Struct("<6s2xQ")
_JUMP: Final = b"\xff\x25\x02\x00\x00\x00"
_DISTANCE: Final = struct.Struct("<i")
_LARGEST: Final = 1 << 30


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


class UnsupportedObjectError(Exception):
    """Object code that only LLVM can load."""


class Block:
    """Executable block of object code; it stays in memory as long as this object lives.

    Raises:
        UnsupportedObjectError: LLVM has to load it.
        CompileError: a function of the C library is missing, memory cannot be allocated, or the files are damaged.
    """

    def __init__(self, objects: Sequence[bytes]) -> None:
        self._files = [ObjectFile(each) for each in objects]
        self._offsets: dict[tuple[int, int], int] = {}
        self._end = 0
        try:
            self._check()
            self._lay_out()
            self._stubs = self._lay_out_stubs()
            if self._end > _LARGEST:
                raise UnsupportedObjectError("the code exceeds the range of relative addresses")
            self._memory = mmap.mmap(-1, max(1, self._end), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self._begin = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
            self._functions = self._defined()
            self._write()
        except (LookupError, ValueError, OverflowError, struct.error) as error:
            raise CompileError("the object file is damaged", found=f"{type(error).__name__}: {error}") from None
        self._protect()

    def address(self, name: str) -> int | None:
        """Return the address of a function, or None."""
        found = self._functions.get(name)
        return None if found is None else self._begin + found

    def _check(self) -> None:
        for file in self._files:
            if file.machine != X86_64 or not all(each.kind in _NEAR for each in file.relocations):
                raise UnsupportedObjectError("unsupported processor or relocation type")

    def _lay_out(self) -> None:
        """Assign an offset to every section."""
        for number, file in enumerate(self._files):
            for index, section in enumerate(file.sections):
                if section.is_loaded:
                    if section.align > mmap.PAGESIZE:
                        raise UnsupportedObjectError("a section is aligned to more than a page")
                    self._end += -self._end % section.align
                    self._offsets[number, index] = self._end
                    self._end += section.size

    def _lay_out_stubs(self) -> dict[str, int]:
        """Assign offsets to jumps to functions of the C library, which may be beyond the reach of a relative call."""
        defined = self._names()
        self._end += -self._end % _STUB.size
        stubs: dict[str, int] = {}
        for file in self._files:
            for relocation in file.relocations:
                symbol = file.symbols[relocation.symbol]
                if symbol.section is None and symbol.name not in defined and symbol.name not in stubs:
                    stubs[symbol.name] = self._end
                    self._end += _STUB.size
        return stubs

    def _names(self) -> frozenset[str]:
        symbols = (each for file in self._files for each in file.symbols)
        return frozenset(each.name for each in symbols if each.is_global and each.section is not None)

    def _defined(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for number, file in enumerate(self._files):
            for symbol in file.symbols:
                if symbol.is_global and symbol.section is not None and (number, symbol.section) in self._offsets:
                    found[symbol.name] = self._offsets[number, symbol.section] + symbol.value
        return found

    def _write(self) -> None:
        for (number, index), offset in self._offsets.items():
            file = self._files[number]
            content = file.content(file.sections[index])
            self._memory[offset : offset + len(content)] = content
        for name, offset in self._stubs.items():
            self._memory[offset : offset + _STUB.size] = _STUB.pack(_JUMP, _of_c(name))
        for number, file in enumerate(self._files):
            for relocation in file.relocations:
                self._point(number, file, relocation)

    def _point(self, number: int, file: ObjectFile, relocation: Relocation) -> None:
        symbol = file.symbols[relocation.symbol]
        if symbol.section is not None:
            target = self._offsets[number, symbol.section] + symbol.value
        else:
            target = self._functions.get(symbol.name, self._stubs.get(symbol.name, -1))
        offset = self._offsets[number, relocation.section] + relocation.offset
        if target < 0 or offset + _DISTANCE.size > self._end:
            raise CompileError("the object file is damaged", found=f"a relocation of symbol '{symbol.name}'")
        _DISTANCE.pack_into(self._memory, offset, target + relocation.addend - offset)

    def _protect(self) -> None:
        """Make the block executable and read-only."""
        libc = ctypes.CDLL(None, use_errno=True)
        size = ctypes.c_size_t(-(-self._end // mmap.PAGESIZE) * mmap.PAGESIZE)
        if libc.mprotect(ctypes.c_void_p(self._begin), size, mmap.PROT_READ | mmap.PROT_EXEC):
            raise UnsupportedObjectError(f"the system does not allow executable memory: error {ctypes.get_errno()}")


def _of_c(name: str) -> int:
    """Return the address of a function of the C library."""
    try:
        found = ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value
    except AttributeError:
        found = None
    if not found:
        raise CompileError("generated code calls an unknown function", found=name)
    return found


@lru_cache(maxsize=1024)
def names_of(data: bytes) -> tuple[frozenset[str], frozenset[str]]:
    """Return the global functions an object defines, and those it needs.

    Raises:
        CompileError: it is not an ELF file.
    """
    symbols = [each for each in ObjectFile(data).symbols if each.is_global and each.name]
    defined = frozenset(each.name for each in symbols if each.section is not None)
    return defined, frozenset(each.name for each in symbols) - defined
