"""Reductions of contiguous rows: sums, means, products, extrema, any and all.

``RowReduction`` reduces floats and applies an epilogue; ``TypedReduction`` reduces any dtype. Integers are summed as
int64 and wrap, as in PyTorch; float64 as float64.

Arguments: source, target, operands of the epilogue.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal

from engine.compiler.codegen.ir import Function, Index, Module, Value, constant, is_dynamic, vector
from engine.compiler.kernels.elements import FUNCTIONS, STORED, Domain, to_domain, to_dtype
from engine.compiler.kernels.folding import SIDE_BY_SIDE, Fold, fold_lanes, largest, load_or, number_of, total, walk_row
from engine.compiler.kernels.functions.arithmetic import negative
from engine.compiler.kernels.kernel import Lines, block_of, start
from engine.compiler.kernels.rows.row_kernel import Row, RowKernel

Mode = Literal["sum", "mean", "max", "min", "product"]
# Columns of a run with its own sum, so that the rounding error does not grow with the length of the row.
RUN = 8192
TypedMode = Literal["sum", "mean", "product", "max", "min", "any", "all", "count"]
_FUNCTIONS: dict[TypedMode, str] = {
    "sum": "add", "mean": "add", "count": "add", "product": "mul", "max": "max", "min": "min", "any": "max",
    "all": "min",
}  # fmt: skip
_INT64 = 2**63


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
        sums = [self._fold(f, f.at(line, runs * RUN), rest)] if is_dynamic(rest) or rest else []
        if is_dynamic(runs) or runs:
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


@dataclass(frozen=True, kw_only=True)
class TypedReduction(Lines):
    """Reduction of every row of contiguous elements.

    Args:
        source, target: row strides of the source and of the results, in elements.
        dtypes: of the source and the target.
        domain: type computed in.
    """

    kind = "rows"
    dynamic_fields = ("rows", "columns", "source", "target")
    mode: TypedMode
    rows: int
    columns: int
    source: int
    target: int
    dtypes: tuple[str, str]
    domain: Domain

    @property
    def flops(self) -> int:
        return self.rows * self.columns

    @property
    def lines(self) -> int:
        return self.rows

    @property
    def line_bytes(self) -> int:
        return self.columns * STORED[self.dtypes[0]][1]

    @property
    def lanes(self) -> int:
        """Return the vector width."""
        return self.host.lanes if self.domain == "float" else max(1, self.host.lanes // 2)

    def emit(self, module: Module) -> None:
        f, (source, target), chunk = start(module, self, 2)
        (dtype, result), counted = self.dtypes, self.mode in ("any", "all", "count")
        size, result_size = STORED[dtype][1], STORED[result][1]
        with f.loop(*block_of(f, chunk, self.block, self.rows)) as row:
            line = f.at(source, f.mul(row.index, self.source), size)

            def load(column: Index, lanes: int, line: Value = line) -> Value:
                element = vector(lanes, STORED[dtype][0])
                value = f.load(element, f.at(line, column, size), size)
                number = to_domain(f, value, dtype, self.domain, self.host)
                return self._truth(f, number) if counted else number

            found = self._fold(f, load)
            if self.mode == "mean":
                found = f.fdiv(found, number_of(f, self.columns, found.type))
            f.store(
                to_dtype(f, found, result, self.host),
                f.at(target, f.mul(row.index, self.target), result_size),
                result_size,
            )
        f.finish()

    def _truth(self, f: Function, value: Value) -> Value:
        return FUNCTIONS[self.domain]["ne"](f, value, constant(0, value.type))

    def _fold(self, f: Function, load: Callable[[Index, int], Value]) -> Value:
        """Emit the reduction: several accumulators, then their lanes, then the remainder, element by element."""
        lanes, columns = self.lanes, self.columns
        stride = SIDE_BY_SIDE * lanes
        carried = [constant(self._nothing, vector(lanes, self.domain))] * SIDE_BY_SIDE
        whole, vectors = columns // stride * stride, columns // lanes * lanes
        is_any = is_dynamic(columns)
        if is_any or whole:
            with f.loop(0, whole, stride, carry=carried) as loop:
                positions = [f.add(loop.index, k * lanes) for k in range(SIDE_BY_SIDE)]
                loop.carry(
                    [self._both(f, each, load(at, lanes)) for at, each in zip(positions, loop.carried, strict=True)]
                )
            carried = loop.results
        first = carried[0]
        if is_any or whole < vectors:
            with f.loop(whole, vectors, lanes, carry=[first]) as loop:
                loop.carry([self._both(f, loop.carried[0], load(loop.index, lanes))])
            (first,) = loop.results
        result = fold_lanes(f, self._all(f, [first, *carried[1:]]), self._all)
        if is_any or vectors < columns:
            with f.loop(vectors, columns, carry=[result]) as loop:
                loop.carry([self._both(f, loop.carried[0], load(loop.index, 1))])
            (result,) = loop.results
        return result

    def _both(self, f: Function, a: Value, b: Value) -> Value:
        return FUNCTIONS[self.domain][_FUNCTIONS[self.mode]](f, a, Value(b.text, b.type))

    def _all(self, f: Function, values: Sequence[Value]) -> Value:
        return reduce(lambda a, b: self._both(f, a, b), values)

    @property
    def _nothing(self) -> float:
        """Return the neutral element."""
        if self.mode in ("product", "all"):
            return 1
        if self.mode == "max":
            return -_INT64 if self.domain == "i64" else -math.inf
        if self.mode == "min":
            return _INT64 - 1 if self.domain == "i64" else math.inf
        return 0
