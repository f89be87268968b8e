"""Reductions of contiguous rows: sums, means, products, maxima and minima.

Arguments: source, target, operands of the epilogue.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal

from engine.compiler.codegen.ir import Function, Index, Value, constant, is_open, vector
from engine.compiler.kernels.folding import SIDE_BY_SIDE, Fold, fold_lanes, largest, load_or, number_of, total, walk_row
from engine.compiler.kernels.functions.arithmetic import negative
from engine.compiler.kernels.rows.row_kernel import Row, RowKernel

Mode = Literal["sum", "mean", "max", "min", "product"]
# Columns of a run with its own sum, so that the rounding error does not grow with the length of the row.
RUN = 8192


def _product(f: Function, values: Sequence[Value]) -> Value:
    return reduce(f.fmul, values)


_FOLDS: dict[str, tuple[Fold, float]] = {
    "sum": (total, 0.0),
    "mean": (total, 0.0),
    "product": (_product, 1.0),
    "max": (largest, -math.inf),
    "min": (largest, -math.inf),
}
"""Reduction operators and their neutral elements."""


@dataclass(frozen=True, kw_only=True)
class RowReduction(RowKernel):
    """Reduction of every row; NaN if the row holds one. Epilogue operands are addressed as (0, row, 0, 0)."""

    kind = "rows"
    mode: Mode

    @property
    def flops(self) -> int:
        return self.rows * self.columns

    @property
    def chunk_elements(self) -> int:
        return self.host.chunk_bytes // 4

    def emit_row(self, row: Row) -> None:
        row.target.store(self._reduce(row.f, row.source), 1)

    def _reduce(self, f: Function, line: Value) -> Value:
        if self.mode == "product":
            return self._fold(f, line, self.columns)
        if self.mode in ("max", "min"):
            highest = self._fold(f, line, self.columns)
            return negative(f, highest) if self.mode == "min" else highest
        runs, rest = divmod(self.columns, RUN)
        sums = [self._fold(f, f.at(line, runs * RUN), rest)] if is_open(rest) or rest else []
        if is_open(runs) or runs:
            with f.loop(0, runs, carry=[constant(0.0, "float")]) as run:
                run.carry([f.fadd(run.carried[0], self._fold(f, f.at(line, f.mul(run.index, RUN)), RUN))])
            sums += run.results
        result = total(f, sums)
        return f.fdiv(result, number_of(f, self.columns)) if self.mode == "mean" else result

    def _fold(self, f: Function, line: Value, columns: int) -> Value:
        """Emit the reduction of contiguous elements; for a minimum, the maximum of the negatives."""
        fold, neutral = _FOLDS[self.mode]

        def load(column: Index, count: int) -> Value:
            other = math.inf if self.mode == "min" else neutral
            value = load_or(f, f.at(line, column), self.width, count, other)
            return negative(f, value) if self.mode == "min" else value

        carry = [constant(neutral, vector(self.width))] * SIDE_BY_SIDE
        parts = walk_row(f, columns, self.width, carry, lambda at, count, each: fold(f, [each, load(at, count)]))
        return fold_lanes(f, fold(f, parts), fold)
