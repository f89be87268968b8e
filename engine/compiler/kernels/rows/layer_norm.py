"""Layer normalisation along contiguous rows, with or without subtracting the mean.

A row is read three times: mean, variance, result. A short row stays in registers, a long one in the L1 cache. The
target may be the source.

Arguments: source, target, weight and bias if present, operands of the epilogue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.compiler.codegen.ir import Index, Value, constant, is_dynamic, vector
from engine.compiler.kernels.folding import fold_lanes, number_of, total
from engine.compiler.kernels.rows.row_kernel import Row, RowKernel


@dataclass(frozen=True, kw_only=True)
class LayerNorm(RowKernel):
    """(x - mean) / sqrt(variance + eps) * weight + bias for every row.

    Args:
        is_centred: whether the mean is subtracted; otherwise x / sqrt(mean(x²) + eps).
    """

    kind = "layer_norm"
    eps: float
    is_centred: bool = True
    has_weight: bool = False
    has_bias: bool = False

    @property
    def flops(self) -> int:
        return 8 * self.rows * self.columns

    @property
    def chunk_elements(self) -> int:
        return 3 * self.host.chunk_bytes // 8  # some 5 µs of a core

    @property
    def extras(self) -> int:
        return self.has_weight + self.has_bias

    def emit_row(self, row: Row) -> None:
        _Normalisation(self, row).emit()


@dataclass(frozen=True, slots=True)
class _Normalisation:
    """Emitter of the three passes over a row."""

    kernel: LayerNorm
    row: Row

    def emit(self) -> None:
        """Emit the passes."""
        f, kernel = self.row.f, self.kernel
        mean = self._mean_of_row() if kernel.is_centred else None
        square = self._mean(lambda column, count: self._square(column, count, mean))
        sum_ = f.fadd(square, constant(kernel.eps, "float"))
        factor = f.splat(f.fdiv(constant(1.0, "float"), f.intrinsic("sqrt", sum_)), kernel.width)
        self.row.finish(lambda column, count: self._scaled(column, count, mean, factor))

    def _mean(self, term: Callable[[Index, int], Value]) -> Value:
        """Emit the mean of a term over the row, as a scalar."""
        f = self.row.f
        sums = self.row.walk(0.0, lambda column, count, carried: f.fadd(carried, term(column, count)))
        return f.fdiv(fold_lanes(f, total(f, sums), total), number_of(f, self.kernel.columns))

    def _mean_of_row(self) -> Value:
        """Emit the first element plus the mean difference from it, to keep precision for numbers far from zero."""
        f = self.row.f
        first = f.load("float", self.row.source)
        return f.fadd(first, self._mean(lambda column, count: self._within(self._centred(column, count, first), count)))

    def _load(self, column: Index, count: int) -> Value:
        return self.row.load(column, count, 0.0)

    def _centred(self, column: Index, count: int, mean: Value | None) -> Value:
        value = self._load(column, count)
        return value if mean is None else self.row.f.fsub(value, self.row.f.splat(mean, self.kernel.width))

    def _square(self, column: Index, count: int, mean: Value | None) -> Value:
        """Emit the squares of a vector, zero in lanes behind the row."""
        value = self._centred(column, count, mean)
        return self._within(self.row.f.fmul(value, value), count)

    def _within(self, value: Value, count: int) -> Value:
        """Zero the lanes behind the row."""
        width = self.kernel.width
        if not is_dynamic(count) and count == width:
            return value
        return self.row.f.select(self.row.f.below(count, width), value, constant(0.0, value.type))

    def _scaled(self, column: Index, count: int, mean: Value | None, factor: Value) -> Value:
        """Emit a vector of the result before the epilogue."""
        f, kernel = self.row.f, self.kernel
        scales = [f.load_lanes(vector(kernel.width), f.at(base, column), count) for base in self.row.extras]
        value = f.fmul(self._centred(column, count, mean), factor)
        if kernel.has_weight:
            value = f.fmul(value, scales[0])
        return f.fadd(value, scales[-1]) if kernel.has_bias else value
