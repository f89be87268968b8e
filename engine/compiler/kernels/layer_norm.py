"""Layer normalisation along rows that are contiguous, with or without subtracting the mean.

A row is read three times: its mean, the mean square of what is left, the result; a short row stays in registers, a long
one in the nearest cache. The target may be the source.

Arguments: source, target, weight and bias where there are any, operands of the epilogue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from engine.compiler.host import Host
from engine.compiler.ir import Function, Index, Module, Value, constant, lanes_below, vector
from engine.compiler.kernels.folding import SIDE_BY_SIDE, fold_lanes, total, walk_row
from engine.compiler.kernels.kernel import Epilogue, Kernel, finish_channels, fitting_lanes, place, start

# Elements of a chunk: some 20 µs of a core.
CHUNK_ELEMENTS = 96 * 1024


@dataclass(frozen=True, kw_only=True)
class LayerNorm(Kernel):
    """(x - mean) / sqrt(variance + eps) * weight + bias for every row.

    Args:
        rows: all of them, one after the other at a constant distance.
        source, target: distance of rows, in elements.
        is_centred: the mean is subtracted; else x / sqrt(mean(x²) + eps).
        epilogue: its operands are addressed as (0, row, 0, column).
    """

    kind = "layer_norm"
    rows: int
    columns: int
    source: int
    target: int
    eps: float
    is_centred: bool = True
    has_weight: bool = False
    has_bias: bool = False
    lanes: int
    epilogue: Epilogue = field(default_factory=Epilogue)

    @property
    def flops(self) -> int:
        return 8 * self.rows * self.columns

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
        count = 2 + self.has_weight + self.has_bias
        f, (source, target, *others), chunk = start(module, self, count + len(self.epilogue.operands))
        scales, extras = others[: count - 2], others[count - 2 :]
        first = f.mul(chunk, self.block)
        with f.loop(first, f.minimum(f.add(first, self.block), self.rows)) as row:
            operands = [
                place(f, base, strides, 0, row.index, 0, 0)
                for base, strides in zip(extras, self.epilogue.operands, strict=True)
            ]
            line, out = f.at(source, f.mul(row.index, self.source)), f.at(target, f.mul(row.index, self.target))
            _Row(self, f, line, out, scales, operands, host.registers // 2).emit()
        f.finish()


@dataclass(frozen=True, slots=True)
class _Row:
    """The code of a row."""

    kernel: LayerNorm
    f: Function
    source: Value
    target: Value
    scales: list[Value]
    operands: list[Value]
    unrolled: int
    kept: dict[int, Value] = field(default_factory=dict)

    def emit(self) -> None:
        """Write the three passes."""
        f, kernel = self.f, self.kernel
        mean = self._mean(self._load) if kernel.is_centred else None
        square = self._mean(lambda column, count: self._square(column, count, mean))
        sum_ = f.fadd(square, constant(kernel.eps, "float"))
        factor = f.fdiv(constant(1.0, "float"), f.intrinsic("sqrt", sum_))
        spread = f.splat(factor, kernel.width)
        self._finish(lambda column, count: f.fmul(self._centred(column, count, mean), spread))

    def _mean(self, term: Callable[[Index, int], Value]) -> Value:
        """The mean of a term over the row, as a scalar."""
        f = self.f
        sums = self._walk(lambda column, count, carried: f.fadd(carried, term(column, count)))
        return f.fdiv(fold_lanes(f, total(f, sums), total), constant(float(self.kernel.columns), "float"))

    def _centred(self, column: Index, count: int, mean: Value | None) -> Value:
        value = self._load(column, count)
        return value if mean is None else self.f.fsub(value, self.f.splat(mean, self.kernel.width))

    def _square(self, column: Index, count: int, mean: Value | None) -> Value:
        """The squares of a vector, zero in lanes behind the row."""
        f, width = self.f, self.kernel.width
        value = self._centred(column, count, mean)
        square = f.fmul(value, value)
        return square if count == width else f.select(lanes_below(count, width), square, constant(0.0, square.type))

    def _finish(self, result: Callable[[Index, int], Value]) -> None:
        """Put every vector through weight, bias and epilogue into the target."""

        def step(column: Index, count: int, carried: Value) -> Value:
            f, kernel = self.f, self.kernel
            scales = [f.load_lanes(vector(kernel.width), f.at(base, column), count) for base in self.scales]
            value = result(column, count)
            if kernel.has_weight:
                value = f.fmul(value, scales[0])
            if kernel.has_bias:
                value = f.fadd(value, scales[-1])
            strides = kernel.epilogue.operands
            places = [f.at(at, f.mul(column, each.c)) for at, each in zip(self.operands, strides, strict=True)]
            f.store_lanes(finish_channels(f, kernel.epilogue, value, places, count), f.at(self.target, column), count)
            return carried

        self._walk(step)

    def _walk(self, step: Callable[[Index, int, Value], Value]) -> list[Value]:
        lanes = self.kernel.width
        carry = [constant(0.0, vector(lanes))] * SIDE_BY_SIDE
        return walk_row(self.f, self.kernel.columns, lanes, carry, step, unrolled=self.unrolled)

    def _load(self, column: Index, count: int) -> Value:
        """A vector of the source, zero behind the row."""
        is_short = self.kernel.columns <= self.unrolled * self.kernel.width
        if isinstance(column, int) and column in self.kept:
            return self.kept[column]
        value = self.f.load_lanes(vector(self.kernel.width), self.f.at(self.source, column), count)
        if is_short and isinstance(column, int):
            self.kept[column] = value
        return value
