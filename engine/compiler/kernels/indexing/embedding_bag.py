"""Embedding bags: sum, mean or maximum of the rows of each bag.

A missing row, or offsets that are not sorted, raise the fault flag: the result is invalid and the reference layer
reports the error.

Arguments: table, indices, offsets, weights (the table again where there are none), target, fault flag (an int).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from engine.compiler.codegen.ir import Function, Index, Module, Value, as_value, constant, is_dynamic, vector
from engine.compiler.kernels.channels import fitting_lanes
from engine.compiler.kernels.functions.arithmetic import maximum
from engine.compiler.kernels.indexing.gather import OUTSIDE, load_index
from engine.compiler.kernels.kernel import Lines, block_of, start

Mode: TypeAlias = Literal["sum", "mean", "max"]


@dataclass(frozen=True, kw_only=True)
class BagPooling(Lines):
    """Embedding bags; one output row a bag.

    Args:
        rows, columns: of the table.
        source: row stride, in elements.
        count: of indices.
        offsets: number of offsets; each bag begins at one and ends at the next, or at the last index.
        bags: number of bags.
        bits: of an index, and of an offset.
        padding: an index that is skipped.
        is_weighted: whether rows are multiplied by weights.
    """

    kind = "bags"
    sets_fault_flag = True
    dynamic_fields = ("source", "count", "offsets", "bags")
    symbolic_fields = ("rows", "columns")
    mode: Mode
    rows: int
    columns: int
    source: int
    count: int
    offsets: int
    bags: int
    bits: tuple[int, int]
    padding: int | None
    is_weighted: bool

    @property
    def lines(self) -> int:
        return self.bags

    @property
    def line_bytes(self) -> int:
        return 4 * self.columns * (1 + self.count // self.bags)

    @property
    def flops(self) -> int:
        return self.count * self.columns

    def emit(self, module: Module) -> None:
        f, (table, indices, offsets, weights, target, fault_flag), chunk = start(module, self, 6)
        lanes = fitting_lanes(self.columns, self.host.lanes)
        whole = self.columns // lanes * lanes
        with f.loop(*block_of(f, chunk, self.block, self.bags)) as bag:
            first, last = self._bounds(f, offsets, bag.index)
            is_fine = f.binary("and", self._follows(f, bag.index, first), f.compare("sle", first, last))
            is_fine = f.binary("and", is_fine, f.compare("sle", last, as_value(self.count)))
            with f.unless(is_fine):
                f.store(constant(OUTSIDE, "i32"), fault_flag)
            with f.when(is_fine):
                out = f.at(target, f.mul(bag.index, self.columns))

                def panel(column: Index, count: int, at: tuple[Value, Value, Value] = (first, last, out)) -> None:
                    begin, end, line = at
                    rows = f.at(table, column)
                    value = self._pooled(f, (begin, end), rows, indices, weights, fault_flag, lanes, count)
                    f.store_lanes(value, f.at(line, column), count)

                if is_dynamic(whole) or whole:
                    with f.loop(0, whole, lanes) as column:
                        panel(column.index, lanes)
                if is_dynamic(whole):
                    with f.loop(whole, self.columns, lanes) as column:
                        panel(column.index, self.columns - whole)
                elif whole < self.columns:
                    panel(whole, self.columns - whole)
        f.finish()

    def _bounds(self, f: Function, offsets: Value, bag: Value) -> tuple[Value, Value]:
        """Emit the range of a bag's indices."""
        first = _integer(f, offsets, bag, self.bits[1])
        following = f.add(bag, 1)
        is_told = f.less(following, self.offsets)
        last = _integer(f, offsets, f.minimum(following, self.offsets - 1), self.bits[1])
        return first, f.select(is_told, last, as_value(self.count))

    def _follows(self, f: Function, bag: Value, first: Value) -> Value:
        """Emit whether a bag may begin there: the first bag must begin at the first index."""
        is_zero = f.compare("eq", first, constant(0, "i64"))
        is_later = f.binary("and", f.less(0, bag), f.compare("sge", first, constant(0, "i64")))
        return f.binary("or", is_zero, is_later)

    def _pooled(
        self,
        f: Function,
        bounds: tuple[Value, Value],
        rows: Value,
        indices: Value,
        weights: Value,
        fault_flag: Value,
        lanes: int,
        real: int,
    ) -> Value:
        type_ = vector(lanes)
        nothing = constant(0.0, type_)
        with f.loop(*bounds, carry=[nothing, constant(0, "i64")]) as each:
            total, count = each.carried
            index = _integer(f, indices, each.index, self.bits[0])
            is_inside = f.compare("ult", index, as_value(self.rows))
            with f.unless(is_inside):
                f.store(constant(OUTSIDE, "i32"), fault_flag)
            row = f.mul(f.select(is_inside, index, constant(0, "i64")), self.source)
            value = f.load_lanes(type_, f.at(rows, row), real)
            if self.is_weighted:
                value = f.fmul(value, f.splat(f.load("float", f.at(weights, each.index)), lanes))
            if self.mode == "max":
                is_first = f.compare("eq", count, constant(0, "i64"))
                added = f.select(is_first, value, maximum(f, total, value))
            else:
                added = f.fadd(total, value)
            more = as_value(f.add(count, 1))
            if self.padding is not None:
                counts = f.compare("ne", index, constant(self.padding, "i64"))
                added, more = f.select(counts, added, total), f.select(counts, more, count)
            each.carry([added, more])
        total, count = each.results
        if self.mode != "mean":
            return total
        divisor = f.convert("sitofp", as_value(f.maximum(count, 1)), "float")
        return f.fdiv(total, f.splat(divisor, lanes))


def _integer(f: Function, base: Value, index: Index, bits: int) -> Value:
    return load_index(f, f.at(base, index, bits // 8), bits)
