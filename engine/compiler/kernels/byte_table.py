"""Maps from bytes to bytes, by a table of all 256 results.

Arguments: target, source, table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.compiler.codegen.host import Host
from engine.compiler.codegen.ir import Function, Index, Value, constant
from engine.compiler.kernels.expr import Operand
from engine.compiler.kernels.map import Map, map_loops

# Bytes of a vector, entries of an instruction's table, and bytes looked up one by one without the instruction.
_WIDTH, _HALF, _SINGLE = 64, 128, 8


@dataclass(frozen=True, kw_only=True)
class ByteTable(Map):
    """Table lookup of static geometry; see ``make_byte_table``."""

    kind = "byte_table"

    @property
    def element_bytes(self) -> int:
        return 2

    @property
    def is_masked(self) -> bool:
        return self.host.has_byte_tables

    def address(self, f: Function, number: int, base: Value, offset: Index) -> Value:
        return f.at(base, offset, 1)

    def load(self, f: Function, number: int, at: Value, index: Index, count: int) -> Value:
        """Return the address of the table, which is no element, or of a vector of the source."""
        return at if number else f.at(at, index, 1)

    def store(self, f: Function, at: Sequence[Value], index: Index, count: int, values: Sequence[Value]) -> None:
        (source, table), target = values, f.at(at[0], index, 1)
        if self.host.has_byte_tables:
            found = _found(f, table, f.load_bytes(source, _WIDTH, count))
            f.store_bytes(found, target, count)
            return
        for k in range(count):
            number = f.convert("zext", f.load("i8", f.at(source, k, 1), 1), "i64")
            f.store(f.load("i8", f.at(table, number, 1), 1), f.at(target, k, 1), 1)


def _found(f: Function, table: Value, codes: Value) -> Value:
    """Emit the entries of 64 bytes: from each half of the table, and those of the half that a byte's high bit says."""
    type_ = codes.type
    halves = []
    for first in (0, _HALF):
        low, high = (f.load(type_, f.at(table, first + k, 1), 1) for k in (0, _WIDTH))
        halves.append(f.call("llvm.x86.avx512.vpermi2var.qi.512", [low, codes, high], type_))
    is_high = f.compare("slt", codes, constant(0, type_))
    return f.select(is_high, halves[1], halves[0])


def make_byte_table(shape: Sequence[int], target: Sequence[int], source: Sequence[int], host: Host) -> ByteTable | None:
    """Return the lookup over ``shape`` for these strides; None unless neighbours lie side by side in both."""
    lanes = _WIDTH if host.has_byte_tables else _SINGLE
    fields = map_loops(shape, [target, source, [0] * len(shape)], host.lanes)
    if (fields["target"][-1], fields["operands"][0][-1]) != (1, 1):
        return None
    return ByteTable(**{**fields, "lanes": lanes}, tree=Operand(0), host=host)
