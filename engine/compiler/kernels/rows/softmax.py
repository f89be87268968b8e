"""Softmax and its logarithm along rows that are contiguous.

A row is read three times: its maximum, the sum of its exponentials, the result. A short row stays in registers, a long
one in the nearest cache. Where the maximum is not finite, all of the row is NaN, as in PyTorch. The target may be the
source.

Arguments: source, target, operands of the epilogue.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.compiler.codegen.ir import Index, Value, constant, vector
from engine.compiler.kernels.expr import functions_of
from engine.compiler.kernels.folding import fold_lanes, largest_number, total
from engine.compiler.kernels.rows.row_kernel import Row, RowKernel


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

    def emit_row(self, row: Row) -> None:
        _Softmax(self, row).emit()


@dataclass(frozen=True, slots=True)
class _Softmax:
    """The three passes over a row."""

    kernel: Softmax
    row: Row

    def emit(self) -> None:
        """Write them."""
        f, lanes, row = self.row.f, self.kernel.width, self.row
        highest = f.splat(self._maximum(), lanes)
        sums = row.walk(0.0, lambda column, count, carried: self._add(column, count, carried, highest))
        sum_ = fold_lanes(f, total(f, sums), total)
        if self.kernel.is_logarithm:
            logarithm = f.splat(functions_of(sum_.type)["log"](f, sum_), lanes)
            row.finish(lambda column, count: f.fsub(f.fsub(self._load(column, count), highest), logarithm))
        else:
            factor = f.splat(f.fdiv(constant(1.0, "float"), sum_), lanes)
            row.finish(lambda column, count: f.fmul(self._exponential(column, count), factor))

    def _maximum(self) -> Value:
        # A NaN may be passed over here: it comes back with the sum.
        f = self.row.f
        values = self.row.walk(
            -math.inf, lambda column, count, carried: largest_number(f, [self._load(column, count), carried])
        )
        return fold_lanes(f, largest_number(f, values), largest_number)

    def _add(self, column: Index, count: int, carried: Value, highest: Value) -> Value:
        """The sum with one more vector; the exponentials are kept where the result will be."""
        f, row = self.row.f, self.row
        value = functions_of(highest.type)["exp_or_zero"](f, f.fsub(self._load(column, count), highest))
        if not self.kernel.is_logarithm and not row.remember(column, value):
            f.store_lanes(value, f.at(row.target.addresses[0], column), count)
        return f.fadd(carried, value)

    def _load(self, column: Index, count: int) -> Value:
        """A vector of the source; lanes behind the row count for nothing."""
        return self.row.load(column, count, -math.inf)

    def _exponential(self, column: Index, count: int) -> Value:
        f, row = self.row.f, self.row
        found = row.remembered(column)
        return found or f.load_lanes(vector(self.kernel.width), f.at(row.target.addresses[0], column), count)
