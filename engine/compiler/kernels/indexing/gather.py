"""Embedding lookup: a row of a table for every index.

An index out of range reads the first row and raises the fault flag: the result is invalid and the reference layer
reports the error.

Arguments: indices, table, target, operands of the epilogue, fault flag (an int).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, Self

from engine.compiler.codegen.ir import Function, Index, Module, Sizes, Value, as_value, constant, vector
from engine.compiler.kernels.channels import fitting_lanes
from engine.compiler.kernels.folding import SIDE_BY_SIDE, walk_row
from engine.compiler.kernels.kernel import Epilogue, Kernel, Strides, block_of, derived, start
from engine.compiler.kernels.target import Target
from engine.ir.dims import is_symbolic, largest, smallest

# Value of the fault flag; FaultFlag of engine/compiler/executable.py.
OUTSIDE = 2


@dataclass(frozen=True, kw_only=True)
class Gather(Kernel):
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
    count: int
    bits: Literal[32, 64]
    rows: int
    columns: int
    source: int
    target: int
    epilogue: Epilogue = field(default_factory=Epilogue)

    def dynamic(self, sizes: Sizes) -> Self:
        symbolic = [name for name in ("rows", "columns") if is_symbolic(getattr(self, name))]
        dynamic = self.with_dynamic(sizes, "count", *symbolic, "source", "target", "epilogue")
        return derived(dynamic, block=sizes.dynamic_count(self.block))

    @cached_property
    def block(self) -> int:
        """Return the indices of a chunk."""
        return largest(1, smallest(self.count, self.host.chunk_bytes // (4 * self.columns)))

    @property
    def chunks(self) -> int:
        return -(-self.count // self.block)

    def emit(self, module: Module) -> None:
        f, (indices, table, out, *operands, fault_flag), chunk = start(module, self, 4 + len(self.epilogue.operands))
        target = Target.of(f, self.epilogue, Strides(0, self.target, 0), [out, *operands])
        lanes = fitting_lanes(self.columns, self.host.lanes)
        with f.loop(*block_of(f, chunk, self.block, self.count)) as each:
            line = f.at(table, f.mul(self._row(f, f.at(indices, each.index, self.bits // 8), fault_flag), self.source))
            place = target.at(0, each.index)

            def copy(column: Index, count: int, carried: Value) -> Value:
                place.store(f.load_lanes(vector(lanes), f.at(line, column), count), count, c=column)
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
