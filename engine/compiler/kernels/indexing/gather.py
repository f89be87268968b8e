"""Gathers: rows of a table for embedding lookups (``Gather``), and single elements (``ElementGather``).

An index out of range reads the first row or element and raises the fault flag: the result is invalid and the reference
layer reports the error.

Arguments of ``Gather``: indices, table, target, operands of the epilogue, fault flag (an int). Of ``ElementGather``:
target, source, indices, fault flag.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from engine.compiler.codegen.ir import Function, Index, Module, Sizes, Value, as_value, constant, is_dynamic, vector
from engine.compiler.kernels.channels import fitting_lanes
from engine.compiler.kernels.folding import SIDE_BY_SIDE, walk_row
from engine.compiler.kernels.kernel import Epilogue, Lines, Strides, block_of, start
from engine.compiler.kernels.map import loop_indices, offset_of
from engine.compiler.kernels.target import Target

# Value of the fault flag; FaultFlag of engine/compiler/executable.py.
OUTSIDE = 2
ELEMENTS = {1: "i8", 2: "i16", 4: "i32", 8: "i64"}
"""Bytes of an element -> LLVM type it is copied as."""


@dataclass(frozen=True, kw_only=True)
class Gather(Lines):
    """table[index] for contiguous rows.

    Args:
        count: of indices, contiguous in memory.
        bits: of an index, a signed integer.
        rows, columns: of the table.
        source, target: row strides, in elements.
        epilogue: its operands are addressed as (0, index, 0, column).
    """

    kind = "gather"
    sets_fault_flag = True
    reads_sparsely = True
    dynamic_fields = ("count", "source", "target", "epilogue")
    symbolic_fields = ("rows", "columns")
    count: int
    bits: Literal[32, 64]
    rows: int
    columns: int
    source: int
    target: int
    epilogue: Epilogue = field(default_factory=Epilogue)

    @property
    def lines(self) -> int:
        return self.count

    @property
    def line_bytes(self) -> int:
        return 4 * self.columns

    def emit(self, module: Module) -> None:
        f, (indices, table, out, *operands, fault_flag), chunk = start(module, self, 4 + len(self.epilogue.operands))
        target = Target.of(f, self.epilogue, Strides(0, self.target, 0), [out, *operands])
        lanes = fitting_lanes(self.columns, self.host.lanes)
        with f.loop(*block_of(f, chunk, self.block, self.count)) as each:
            line = f.at(table, f.mul(self._row(f, f.at(indices, each.index, self.bits // 8), fault_flag), self.source))
            row_target = target.at(0, each.index)

            def copy(column: Index, count: int, carried: Value) -> Value:
                row_target.store(f.load_lanes(vector(lanes), f.at(line, column), count), count, c=column)
                return carried

            walk_row(f, self.columns, lanes, [constant(0.0, vector(lanes))] * SIDE_BY_SIDE, copy)
        f.finish()

    def _row(self, f: Function, at: Value, fault_flag: Value) -> Value:
        """Emit the row of an index; out of range, raise the fault flag and use the first row."""
        index = load_index(f, at, self.bits)
        is_inside = f.compare("ult", index, as_value(self.rows))
        with f.unless(is_inside):
            f.store(constant(OUTSIDE, "i32"), fault_flag)
        return f.select(is_inside, index, constant(0, "i64"))


def load_index(f: Function, at: Value, bits: int) -> Value:
    """Load an integer of this many bits as an i64."""
    index = f.load(f"i{bits}", at, bits // 8)
    return index if bits == 64 else f.convert("sext", index, "i64")


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexOperand:
    """Indices along one dimension of the source.

    Args:
        strides: of the index tensor along the loops.
        bits: of an index, a signed integer.
        size: of the dimension.
        step: stride of the source along it.
        wraps: whether negative indices count from the end.
    """

    strides: tuple[int, ...]
    bits: int
    size: int
    step: int
    wraps: bool

    def dynamic(self, sizes: Sizes) -> IndexOperand:
        """Return these indices for a dimension of dynamic size."""
        strides = tuple(map(sizes.dynamic, self.strides))
        return replace(self, strides=strides, size=sizes.dynamic_count(self.size), step=sizes.dynamic(self.step))


@dataclass(frozen=True, kw_only=True)
class ElementGather(Lines):
    """source[..., index, ...] over loops of static sizes, the outermost first.

    Args:
        target, source: strides along the loops; 0 in the source for loops over indices.
        element: bytes of an element.
    """

    kind = "gather"
    sets_fault_flag = True
    dynamic_fields = ("sizes", "target", "source", "positions")
    sizes: tuple[int, ...]
    target: tuple[int, ...]
    source: tuple[int, ...]
    positions: tuple[IndexOperand, ...]
    element: int

    @property
    def lines(self) -> int:
        """Return the iterations of all loops but the last."""
        return math.prod(self.sizes[:-1])

    @property
    def line_bytes(self) -> int:
        return self.element * self.sizes[-1]

    def emit(self, module: Module) -> None:
        f, (target, source, *indices, fault_flag), chunk = start(module, self, 3 + len(self.positions))
        is_shared = all(each.strides[-1] == 0 for each in self.positions)
        with f.loop(*block_of(f, chunk, self.block, self.lines)) as row:
            indices_ = loop_indices(f, row.index, self.sizes)
            out = f.at(target, offset_of(f, indices_, self.target), self.element)
            line = f.at(source, offset_of(f, indices_, self.source), self.element)
            at = [
                f.at(base, offset_of(f, indices_, each.strides), each.bits // 8)
                for base, each in zip(indices, self.positions, strict=True)
            ]
            if is_shared:
                self._copy(f, out, self._picked(f, line, at, 0, fault_flag))
            else:
                with f.loop(0, self.sizes[-1]) as column:
                    address = f.at(line, f.mul(column.index, self.source[-1]), self.element)
                    self._move(f, out, column.index, self._picked(f, address, at, column.index, fault_flag), 0)
        f.finish()

    def _picked(self, f: Function, line: Value, at: Sequence[Value], column: Index, fault_flag: Value) -> Value:
        """Emit the address of the indexed element."""
        for base, each in zip(at, self.positions, strict=True):
            size = each.bits // 8
            index = load_index(f, f.at(base, f.mul(column, each.strides[-1]), size), each.bits)
            if each.wraps:
                wrapped = f.op("i64", f"add i64 {index.text}, {as_value(each.size).text}")
                index = f.select(f.less(index, 0), wrapped, index)
            is_inside = f.compare("ult", index, as_value(each.size))
            with f.unless(is_inside):
                f.store(constant(OUTSIDE, "i32"), fault_flag)
            index = f.select(is_inside, index, constant(0, "i64"))
            line = f.at(line, f.mul(index, each.step), self.element)
        return line

    def _copy(self, f: Function, out: Value, line: Value) -> None:
        """Emit the last loop where it is contiguous in the source."""
        columns = self.sizes[-1]
        lanes = fitting_lanes(columns, self.host.lanes * 4 // self.element)
        lanes = lanes if self.source[-1] == self.target[-1] == 1 and (is_dynamic(columns) or lanes <= columns) else 1
        whole = columns // lanes * lanes
        with f.loop(0, whole, lanes) as column:
            self._move(f, out, column.index, line, column.index, lanes)
        if is_dynamic(columns) or whole < columns:
            with f.loop(whole, columns) as column:
                self._move(f, out, column.index, line, column.index)

    def _move(self, f: Function, out: Value, to: Index, line: Value, by: Index, lanes: int = 1) -> None:
        type_ = vector(lanes, ELEMENTS[self.element])
        value = f.load(type_, f.at(line, f.mul(by, self.source[-1]), self.element), self.element)
        f.store(value, f.at(out, f.mul(to, self.target[-1]), self.element), self.element)
