"""Softmax and log-softmax along contiguous rows.

A row is read three times: maximum, sum of exponentials, result. A short row stays in registers, a long one in the L1
cache. Rows so short that several fit a vector, such as the classes of pixels, are computed together. If the maximum is
not finite, the whole row is NaN, as in PyTorch. The target may be the source.

Arguments: source, target, operands of the epilogue.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from engine.compiler.codegen.ir import Function, Index, Value, constant, element_of, is_dynamic, vector
from engine.compiler.kernels.channels import fitting_lanes
from engine.compiler.kernels.expr import functions_of
from engine.compiler.kernels.folding import fold_lanes, largest_number, total
from engine.compiler.kernels.numbers import FLOAT
from engine.compiler.kernels.rows.row_kernel import Row, RowKernel
from engine.compiler.kernels.target import Target
from engine.ir.dims import is_symbolic


@dataclass(frozen=True, slots=True)
class ShortRows:
    """Layout of several rows in a vector.

    Args:
        columns: of a row.
        lanes: of the vector; those behind the last whole row are unused.
    """

    columns: int
    lanes: int

    @property
    def count(self) -> int:
        """Return the rows of a vector."""
        return self.lanes // self.columns

    @property
    def used(self) -> int:
        """Return the lanes that hold an element."""
        return self.count * self.columns

    def largest(self, f: Function, value: Value) -> Value:
        """Emit the maximum of its row in every lane; a NaN may be ignored."""
        reach = 1  # for a maximum, elements may be visited twice
        while reach < self.columns:
            value = largest_number(f, [self._rotated(f, value, reach), value])
            reach *= 2
        return value

    def total(self, f: Function, value: Value) -> Value:
        """Emit the sum of its row in every lane, identical in all lanes of a row."""
        parts, seen = list[Value](), 0
        for bit in range(self.columns.bit_length()):
            reach = 1 << bit  # each lane holds the sum of ``reach`` elements from its own on
            if bit:
                value = f.fadd(value, self._rotated(f, value, reach // 2))
            if self.columns & reach:
                parts.append(self._rotated(f, value, seen))
                seen += reach
        return self._shuffled(f, total(f, parts), lambda column: 0)

    def row(self, f: Function, value: Value, number: int) -> Value:
        """Emit one of the rows, in the first lanes of a vector."""
        lanes, first = fitting_lanes(self.columns, self.lanes), number * self.columns
        if lanes == 1:
            return f.op(element_of(value.type), f"extractelement {value.type} {value.text}, i64 {first}")
        picks = [first + column if column < self.columns else None for column in range(lanes)]
        return f.shuffle(value, Value("poison", value.type), picks)

    def _rotated(self, f: Function, value: Value, distance: int) -> Value:
        """Rotate every row by a distance."""
        return self._shuffled(f, value, lambda column: (column + distance) % self.columns) if distance else value

    def _shuffled(self, f: Function, value: Value, source: Callable[[int], int]) -> Value:
        picks = [
            lane - lane % self.columns + source(lane % self.columns) if lane < self.used else lane
            for lane in range(self.lanes)
        ]
        return f.shuffle(value, Value("poison", value.type), picks)


@dataclass(frozen=True, kw_only=True)
class Softmax(RowKernel):
    """exp(x) / sum(exp(x)) for every row, or its logarithm.

    Args:
        is_logarithm: x - log(sum(exp(x))) instead.
    """

    kind = "softmax"
    is_logarithm: bool = False

    @property
    def flops(self) -> int:
        return 4 * self.rows * self.columns

    @property
    def chunk_elements(self) -> int:
        return 3 * self.host.chunk_bytes // 4  # some 20 µs of a core

    @property
    def together(self) -> ShortRows | None:
        """Return the layout of several rows in a vector; None if each row is computed separately."""
        if is_symbolic(self.columns) or is_dynamic(self.columns):
            return None
        found = ShortRows(self.columns, self.host.lanes)
        return found if self.source == self.columns and found.count > 1 else None

    @property
    def is_dense(self) -> bool:
        """Return whether results and epilogue operands are contiguous."""
        strides = [(self.target, 1), *((each.h, each.c) for each in self.epilogue.operands)]
        return all(stride in ((self.columns, 1), (0, 0)) for stride in strides)

    @property
    def rows_at_once(self) -> int:
        return 1 if self.together is None else self.together.count

    @property
    def dynamic_fields(self) -> tuple[str, ...]:
        if self.together is None:
            return super().dynamic_fields
        return ("rows",) if self.is_dense else ("rows", "target", "epilogue")

    def emit_rows(self, f: Function, source: Value, target: Target, rows: tuple[Index, Index]) -> Index:
        together, (begin, end) = self.together, rows
        if together is None:
            return begin
        whole = f.add(begin, f.mul(f.divmod(f.sub(end, begin), together.count)[0], together.count))
        with f.loop(begin, whole, together.count) as row:
            result = self._of_vector(f, together, f.at(source, f.mul(row.index, self.columns)))
            if self.is_dense:
                target.at(0, row.index).store(result, together.used)
            else:
                for number in range(together.count):
                    target.at(0, f.add(row.index, number)).store(together.row(f, result, number), self.columns)
        return whole

    def _of_vector(self, f: Function, together: ShortRows, line: Value) -> Value:
        """Emit the results of the rows of a vector."""
        x = f.load_lanes(vector(self.host.lanes), line, together.used)
        functions, distance = functions_of(x.type), f.fsub(x, together.largest(f, x))
        exponentials = functions["exp_or_zero"](f, distance)
        sums = together.total(f, exponentials)
        if self.is_logarithm:
            return f.fsub(distance, functions["log"](f, sums))
        return f.fmul(exponentials, f.fdiv(constant(1.0, sums.type), sums))

    def emit_row(self, row: Row) -> None:
        _Softmax(self, row).emit()


@dataclass(frozen=True, slots=True)
class _Softmax:
    """Emitter of the three passes over a row."""

    kernel: Softmax
    row: Row

    def emit(self) -> None:
        """Emit the passes."""
        f, lanes, row = self.row.f, self.kernel.width, self.row
        highest = f.splat(self._maximum(), lanes)
        sums = row.walk(0.0, lambda column, count, carried: self._add(column, count, carried, highest))
        sum_ = fold_lanes(f, total(f, sums), total)
        if self.kernel.is_logarithm:
            logarithm = f.splat(functions_of(sum_.type)["log"](f, sum_), lanes)
            row.finish(lambda column, count: f.fsub(f.fsub(self._load(column, count), highest), logarithm))
        else:
            factor = f.splat(f.fdiv(constant(1.0, "float"), sum_), lanes)
            row.finish(lambda column, count: f.fmul(self._exponential(column, count, highest), factor))

    def _maximum(self) -> Value:
        # A NaN may be ignored here: the sum propagates it.
        f = self.row.f
        values = self.row.walk(
            -math.inf, lambda column, count, carried: largest_number(f, [self._load(column, count), carried])
        )
        return fold_lanes(f, largest_number(f, values), largest_number)

    def _add(self, column: Index, count: int, carried: Value, highest: Value) -> Value:
        """Add the exponentials of a vector to the sum and keep them for the last pass."""
        f, row = self.row.f, self.row
        value = functions_of(highest.type)["exp_or_zero"](f, f.fsub(self._load(column, count), highest))
        if not self.kernel.is_logarithm and not row.remember(column, value) and self._keeps_exponentials:
            f.store_lanes(value, f.at(row.target.addresses[0], column), count)
        return f.fadd(carried, value)

    def _load(self, column: Index, count: int) -> Value:
        """Load a vector of the source, -inf in lanes behind the row."""
        return self.row.load(column, count, -math.inf)

    @property
    def _keeps_exponentials(self) -> bool:
        """Return whether the target has room for the exponentials of a long row; else they are computed again."""
        return self.kernel.epilogue.dtype == FLOAT

    def _exponential(self, column: Index, count: int, highest: Value) -> Value:
        f, row = self.row.f, self.row
        if (found := row.remembered(column)) is not None:
            return found
        if self._keeps_exponentials:
            return f.load_lanes(vector(self.kernel.width), f.at(row.target.addresses[0], column), count)
        return functions_of(highest.type)["exp_or_zero"](f, f.fsub(self._load(column, count), highest))
