"""Base of kernels along contiguous rows: the loop over rows, and passes over the vectors of a row.

Arguments: source, target, further arguments of the kernel, operands of the epilogue.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

from engine.compiler.codegen.host import Host
from engine.compiler.codegen.ir import Function, Index, Module, Sizes, Value, constant, vector
from engine.compiler.kernels.channels import fitting_lanes
from engine.compiler.kernels.folding import SIDE_BY_SIDE, load_or, walk_row
from engine.compiler.kernels.kernel import Epilogue, Kernel, Strides, block_of, derived, start
from engine.compiler.kernels.target import Target
from engine.ir.dims import is_symbolic, largest, smallest


@dataclass(frozen=True, kw_only=True)
class RowKernel(Kernel):
    """Kernel that computes row by row.

    Args:
        rows: number of rows, at a constant distance.
        source, target: row strides of the source and of the results, in elements.
        epilogue: its operands are addressed as (0, row, 0, column).
    """

    rows: int
    columns: int
    source: int
    target: int
    epilogue: Epilogue = field(default_factory=Epilogue)

    @classmethod
    def of(cls, shape: Sequence[int], strides: tuple[int, int], host: Host, **options: Any) -> Self:
        """Return the kernel for rows of this shape, with the row strides of the source and of the results."""
        return cls(rows=shape[0], columns=shape[1], source=strides[0], target=strides[1], host=host, **options)

    @property
    @abstractmethod
    def chunk_elements(self) -> int:
        """Return the number of source elements a chunk should have."""

    @property
    def extras(self) -> int:
        """Return the number of arguments between the target and the operands of the epilogue."""
        return 0

    @property
    def rows_at_once(self) -> int:
        """Return the number of rows computed together."""
        return 1

    @property
    def dynamic_fields(self) -> tuple[str, ...]:
        """Return the fields that can be dynamic; the row length only if it is symbolic."""
        columns = ("columns",) if is_symbolic(self.columns) else ()
        return "rows", *columns, "source", "target", "epilogue"

    def dynamic(self, sizes: Sizes) -> Self:
        return derived(self.with_dynamic(sizes, *self.dynamic_fields), block=sizes.dynamic_count(self.block))

    @cached_property
    def block(self) -> int:
        """Return the rows of a chunk."""
        together = self.rows_at_once
        rows = largest(1, smallest(self.rows, self.chunk_elements // self.columns))
        return -(-rows // together) * together

    @property
    def chunks(self) -> int:
        return -(-self.rows // self.block)

    @property
    def width(self) -> int:
        """Return the vector width, at most a row."""
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
        """Emit the rows of a block that are computed together; return the first row left for ``emit_row``."""
        return rows[0]

    @abstractmethod
    def emit_row(self, row: Row) -> None:
        """Emit a row."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row being emitted.

    Args:
        source, target: address of its first element in each.
        extras: further arguments of the kernel.
        unrolled: rows of up to this many vectors stay in registers between passes.
    """

    kernel: RowKernel
    f: Function
    source: Value
    target: Target
    extras: list[Value]
    unrolled: int
    kept: dict[int, Value] = field(default_factory=dict)

    def walk(self, begin: float, step: Callable[[Index, int, Value], Value]) -> list[Value]:
        """Emit a pass over the vectors of the row; see ``walk_row``."""
        lanes = self.kernel.width
        carry = [constant(begin, vector(lanes))] * SIDE_BY_SIDE
        return walk_row(self.f, self.kernel.columns, lanes, carry, step, unrolled=self.unrolled)

    def finish(self, result: Callable[[Index, int], Value]) -> None:
        """Emit the last pass: store every vector of the result through the epilogue."""

        def step(column: Index, count: int, carried: Value) -> Value:
            self.target.store(result(column, count), count, c=column)
            return carried

        self.walk(0.0, step)

    def load(self, column: Index, count: int, behind: float) -> Value:
        """Load a vector of the source, ``behind`` in lanes behind the row; short rows are loaded once."""
        found = self.remembered(column)
        if found is not None:
            return found
        value = load_or(self.f, self.f.at(self.source, column), self.kernel.width, count, behind)
        self.remember(column, value)
        return value

    def remembered(self, column: Index) -> Value | None:
        """Return the vector kept in a register for a column."""
        return self.kept.get(column) if isinstance(column, int) else None

    def remember(self, column: Index, value: Value) -> bool:
        """Keep a vector in a register if the row is short enough; return whether it is."""
        if isinstance(column, int) and self.kernel.columns <= self.unrolled * self.kernel.width:
            self.kept[column] = value
            return True
        return False
