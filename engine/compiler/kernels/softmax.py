"""Softmax and its logarithm along rows that are contiguous.

A row is read three times: its maximum, the sum of its exponentials, the result. A short row stays in registers, a long
one in the nearest cache. Where the maximum is not finite, all of the row is NaN, as in PyTorch. The target may be the
source.

Arguments: source, target, operands of the epilogue.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.compiler.host import Host
from engine.compiler.ir import Function, Index, Module, Value, constant, vector
from engine.compiler.kernels.exponential import exp_down
from engine.compiler.kernels.folding import SIDE_BY_SIDE, fold_lanes, largest_number, load_or, total, walk_row
from engine.compiler.kernels.kernel import Epilogue, Kernel, finish_channels, fitting_lanes, place, start
from engine.compiler.kernels.math import FUNCTIONS

# Elements of a chunk: some 20 µs of a core.
CHUNK_ELEMENTS = 48 * 1024


@dataclass(frozen=True, kw_only=True)
class Softmax(Kernel):
    """exp(x) / sum(exp(x)) for every row, or its logarithm.

    Args:
        rows: all of them, one after the other at a constant distance.
        source, target: distance of rows, in elements.
        is_logarithm: x - log(sum(exp(x))) instead.
        epilogue: its operands are addressed as (0, row, 0, column).
    """

    kind = "softmax"
    rows: int
    columns: int
    source: int
    target: int
    is_logarithm: bool = False
    lanes: int
    epilogue: Epilogue = field(default_factory=Epilogue)

    @property
    def flops(self) -> int:
        return 4 * self.rows * self.columns

    @property
    def block(self) -> int:
        """Rows of a chunk."""
        return max(1, min(self.rows, CHUNK_ELEMENTS // self.columns))

    @property
    def chunks(self) -> int:
        return -(-self.rows // self.block)

    @property
    def width(self) -> int:
        """Lanes of a vector, no more than a row can use."""
        return fitting_lanes(self.columns, self.lanes)

    def emit(self, module: Module, host: Host) -> None:
        f, (source, target, *extras), chunk = start(module, self, 2 + len(self.epilogue.operands))
        first = f.mul(chunk, self.block)
        with f.loop(first, f.minimum(f.add(first, self.block), self.rows)) as row:
            operands = [
                place(f, base, strides, 0, row.index, 0, 0)
                for base, strides in zip(extras, self.epilogue.operands, strict=True)
            ]
            line, out = f.at(source, f.mul(row.index, self.source)), f.at(target, f.mul(row.index, self.target))
            _Row(self, f, line, out, operands, host.registers // 2).emit()
        f.finish()


@dataclass(frozen=True, slots=True)
class _Row:
    """The code of a row."""

    kernel: Softmax
    f: Function
    source: Value
    target: Value
    operands: list[Value]
    unrolled: int
    kept: dict[int, Value] = field(default_factory=dict)

    @property
    def is_short(self) -> bool:
        """Whether the row's vectors stay in registers from pass to pass."""
        return self.kernel.columns <= self.unrolled * self.kernel.width

    def emit(self) -> None:
        """Write the three passes."""
        f, lanes = self.f, self.kernel.width
        highest = f.splat(self._maximum(), lanes)
        sums = self._walk(0.0, lambda column, count, carried: self._add(column, count, carried, highest))
        sum_ = fold_lanes(f, total(f, sums), total)
        if self.kernel.is_logarithm:
            logarithm = f.splat(FUNCTIONS["log"](f, sum_), lanes)
            self._finish(lambda column, count: f.fsub(f.fsub(self._load(column, count), highest), logarithm))
        else:
            factor = f.splat(f.fdiv(constant(1.0, "float"), sum_), lanes)
            self._finish(lambda column, count: f.fmul(self._kept(column, count), factor))

    def _maximum(self) -> Value:
        # A NaN may be passed over here: it comes back with the sum.
        f = self.f
        values = self._walk(
            -math.inf, lambda column, count, carried: largest_number(f, [self._load(column, count), carried])
        )
        return fold_lanes(f, largest_number(f, values), largest_number)

    def _add(self, column: Index, count: int, carried: Value, highest: Value) -> Value:
        """The sum with one more vector; the exponentials are kept where the result will be."""
        f = self.f
        value = exp_down(f, f.fsub(self._load(column, count), highest))
        if not self.kernel.is_logarithm:
            self._keep(column, count, value)
        return f.fadd(carried, value)

    def _finish(self, result: Callable[[Index, int], Value]) -> None:
        """Put every vector through the epilogue into the target."""

        def step(column: Index, count: int, carried: Value) -> Value:
            f, strides = self.f, self.kernel.epilogue.operands
            places = [f.at(at, f.mul(column, each.c)) for at, each in zip(self.operands, strides, strict=True)]
            value = finish_channels(f, self.kernel.epilogue, result(column, count), places, count)
            f.store_lanes(value, f.at(self.target, column), count)
            return carried

        self._walk(0.0, step)

    def _walk(self, begin: float, step: Callable[[Index, int, Value], Value]) -> list[Value]:
        lanes = self.kernel.width
        carry = [constant(begin, vector(lanes))] * SIDE_BY_SIDE
        return walk_row(self.f, self.kernel.columns, lanes, carry, step, unrolled=self.unrolled)

    def _load(self, column: Index, count: int) -> Value:
        """A vector of the source; lanes behind the row count for nothing."""
        if isinstance(column, int) and column in self.kept:
            return self.kept[column]
        value = load_or(self.f, self.f.at(self.source, column), self.kernel.width, count, -math.inf)
        if self.is_short and isinstance(column, int):
            self.kept[column] = value
        return value

    def _keep(self, column: Index, count: int, value: Value) -> None:
        """Remember an exponential for the last pass."""
        if self.is_short and isinstance(column, int):
            self.kept[column] = value
        else:
            self.f.store_lanes(value, self.f.at(self.target, column), count)

    def _kept(self, column: Index, count: int) -> Value:
        if self.is_short and isinstance(column, int):
            return self.kept[column]
        return self.f.load_lanes(vector(self.kernel.width), self.f.at(self.target, column), count)
