"""What kernels share that work on rows which are contiguous: the loop over rows, and passes over the vectors of one.

Arguments: source, target, what the kernel adds to them, operands of the epilogue.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

from engine.compiler.codegen.ir import Function, Index, Module, Sizes, Value, constant, vector
from engine.compiler.kernels.channels import fitting_lanes
from engine.compiler.kernels.folding import SIDE_BY_SIDE, load_or, walk_row
from engine.compiler.kernels.kernel import Epilogue, Kernel, Strides, block_of, derived, start
from engine.compiler.kernels.target import Target
from engine.ir.dims import is_symbolic, largest, smallest


@dataclass(frozen=True, kw_only=True)
class RowKernel(Kernel):
    """A kernel that computes row by row.

    Args:
        rows: all of them, one after the other at a constant distance.
        source, target: distance of rows, or of the results of rows, in elements.
        epilogue: its operands are addressed as (0, row, 0, column).
    """

    rows: int
    columns: int
    source: int
    target: int
    epilogue: Epilogue = field(default_factory=Epilogue)

    @property
    @abstractmethod
    def chunk_elements(self) -> int:
        """Elements of the source that a chunk should have."""

    @property
    def extras(self) -> int:
        """Arguments between the target and the operands of the epilogue."""
        return 0

    @property
    def rows_at_once(self) -> int:
        """Rows that are computed together."""
        return 1

    @property
    def open_fields(self) -> tuple[str, ...]:
        """What its code can read when it runs; the length of rows where it is symbolic."""
        columns = ("columns",) if is_symbolic(self.columns) else ()
        return "rows", *columns, "source", "target", "epilogue"

    def opened(self, sizes: Sizes) -> Self:
        return derived(self.with_open(sizes, *self.open_fields), block=sizes.count(self.block))

    @cached_property
    def block(self) -> int:
        """Rows of a chunk."""
        together = self.rows_at_once
        rows = largest(1, smallest(self.rows, self.chunk_elements // self.columns))
        return -(-rows // together) * together

    @property
    def chunks(self) -> int:
        return -(-self.rows // self.block)

    @property
    def width(self) -> int:
        """Lanes of a vector, no more than a row can use."""
        return fitting_lanes(self.columns, self.host.lanes)

    def emit(self, module: Module) -> None:
        count = 2 + self.extras
        f, (source, out, *others), chunk = start(module, self, count + len(self.epilogue.operands))
        extras, operands = others[: self.extras], others[self.extras :]
        target = Target.of(f, self.epilogue, Strides(0, self.target, 0), [out, *operands])
        begin, end = block_of(f, chunk, self.block, self.rows)
        begin = self.emit_rows(f, source, target, (begin, end))
        with f.loop(begin, end) as row:
            line = f.at(source, f.mul(row.index, self.source))
            self.emit_row(Row(self, f, line, target.at(0, row.index), extras, self.host.registers // 2))
        f.finish()

    def emit_rows(self, f: Function, source: Value, target: Target, rows: tuple[Index, Index]) -> Index:
        """Write the code of those rows of a block, from the first on, that are not computed one by one; the next."""
        return rows[0]

    @abstractmethod
    def emit_row(self, row: Row) -> None:
        """Write the code of a row."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row while its code is written.

    Args:
        source, target: where it begins in each.
        extras: what the kernel adds to its arguments.
        unrolled: so many vectors of a row stay in registers from pass to pass.
    """

    kernel: RowKernel
    f: Function
    source: Value
    target: Target
    extras: list[Value]
    unrolled: int
    kept: dict[int, Value] = field(default_factory=dict)

    def walk(self, begin: float, step: Callable[[Index, int, Value], Value]) -> list[Value]:
        """A pass over the vectors of the row; see walk_row()."""
        lanes = self.kernel.width
        carry = [constant(begin, vector(lanes))] * SIDE_BY_SIDE
        return walk_row(self.f, self.kernel.columns, lanes, carry, step, unrolled=self.unrolled)

    def finish(self, result: Callable[[Index, int], Value]) -> None:
        """The last pass: every vector of the result through the epilogue into the target."""

        def step(column: Index, count: int, carried: Value) -> Value:
            self.target.store(result(column, count), count, c=column)
            return carried

        self.walk(0.0, step)

    def load(self, column: Index, count: int, behind: float) -> Value:
        """A vector of the source, ``behind`` in lanes behind the row; of a short row it is loaded once."""
        found = self.remembered(column)
        if found is not None:
            return found
        value = load_or(self.f, self.f.at(self.source, column), self.kernel.width, count, behind)
        self.remember(column, value)
        return value

    def remembered(self, column: Index) -> Value | None:
        """What is kept in a register for a column."""
        return self.kept.get(column) if isinstance(column, int) else None

    def remember(self, column: Index, value: Value) -> bool:
        """Keep a vector in a register, if the row is short enough."""
        if isinstance(column, int) and self.kernel.columns <= self.unrolled * self.kernel.width:
            self.kept[column] = value
            return True
        return False
