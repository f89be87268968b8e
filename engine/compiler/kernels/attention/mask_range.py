"""Mask range pruning: the range of keys a tile of queries has to read, found from its masks at run time.

Left or right padding, sliding windows and explicit causal masks exclude keys at either end. Whether a key has weight
depends on its score too, so scores are bounded by the largest elements of queries and keys. A weight of 0 times
infinity is NaN, so excluded values must be finite. Where this cannot be proven, all keys are read.

Keys are compared with the best key: the one whose smallest mask number over all queries of the tile is largest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import ClassVar

from engine.compiler.codegen.ir import Function, Index, Module, Value, as_value, constant, lanes_below, mangled, vector
from engine.compiler.kernels.attention.rows import Mask
from engine.compiler.kernels.folding import fold_lanes, largest_number
from engine.compiler.kernels.functions.arithmetic import absolute, bits, from_bits, integer, maximum, minimum
from engine.compiler.kernels.products.matrix import Matrix

# exp() of less rounds to no weight relative to the largest score.
NO_WEIGHT = -90.0
# Nothing is pruned if scores or the best key's mask number exceed this.
LARGEST = 1e30


def zero_bits(lanes: int) -> Value:
    """Return the start value of ``max_abs_bits``."""
    return constant(0, vector(lanes, "i32"))


def max_abs_bits(f: Function, carried: Value, at: Value, count: int, lanes: int) -> Value:
    """Emit the maximum of ``carried`` and the absolute values of ``count`` numbers, as bits."""
    magnitude = integer(f, "and", bits(f, f.load_lanes(vector(lanes), at, count)), 0x7FFFFFFF)
    return f.intrinsic("umax", carried, magnitude)


def max_abs_of_lanes(f: Function, carried: Value) -> Value:
    """Emit the largest absolute value of all lanes; NaN if one is NaN."""
    return from_bits(f, f.call(f"llvm.vector.reduce.umax.{mangled(carried.type)}", [carried], "i32"))


def max_abs(f: Function, base: Value, pitch: int, rows: Index, columns: int, *, lanes: int) -> Value:
    """Emit the largest absolute value in some rows; NaN if one is NaN."""
    with f.loop(0, rows, carry=[zero_bits(lanes)]) as row:
        line, carried = f.at(base, f.mul(row.index, pitch)), row.carried[0]
        for column in range(0, columns, lanes):
            carried = max_abs_bits(f, carried, f.at(line, column), min(lanes, columns - column), lanes)
        row.carry([carried])
    return max_abs_of_lanes(f, row.results[0])


def is_finite(f: Function, magnitude: Value) -> Value:
    """Emit whether a largest absolute value is finite."""
    return f.compare("olt", magnitude, constant(math.inf, "float"))


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskRange:
    """Generator of the function that finds the range; it stores ``SPAN`` numbers a tile: first key and end.

    Args:
        rows: queries of a tile.
        keys, width, values: of the attention; there are more keys than lanes.
        query, key, value: their strides: queries and values in rows, keys in rows or in columns.
        masks: at least one, each with an element for every key.
        scale: of the scores.
    """

    SPAN: ClassVar[int] = 2
    rows: int
    keys: int
    width: int
    values: int
    query: Matrix
    key: Matrix
    value: Matrix
    masks: tuple[Mask, ...]
    scale: float
    lanes: int

    def emit(self, module: Module, name: str) -> str:
        """Emit the function (queries, keys, values, span, masks) and return its name."""
        masks = (f"mask{k}" for k in range(len(self.masks)))
        f = module.inner(name, [("ptr", each) for each in ("queries", "keys", "values", "span", *masks)])
        span = f.parameters[3]
        self._store_range(f, span, as_value(0), as_value(self.keys))
        with f.unless(self._reads_both_ends(f)):
            self._store_range(f, span, *self._key_range(f, *self._best_key(f)))
        f.finish()
        return name

    def _store_range(self, f: Function, span: Value, begin: Value, end: Value) -> None:
        for index, each in enumerate((begin, end)):
            f.store(each, f.at(span, index, 8), 8)

    def _reads_both_ends(self, f: Function) -> Value:
        """Emit whether the first and the last keys may both have weight, as is usual: then all keys are read."""
        limit = constant(NO_WEIGHT, "float")
        (begins, _), (ends, _) = (self._may_attend(f, *each, limit) for each in ((0, self.lanes), self._last))
        return f.binary("and", begins, ends)

    def _best_key(self, f: Function) -> tuple[Value, Value]:
        """Emit the largest, over keys, of the smallest mask number over rows, and that key."""
        floats, index_type = vector(self.lanes), vector(self.lanes, "i32")

        def step(column: Index, count: int, carried: Sequence[Value]) -> list[Value]:
            least = self._least(f, column, count)
            is_better = f.compare("ogt", least, carried[0])
            index = f.splat(f.convert("trunc", as_value(column), "i32"), self.lanes)
            return [f.select(is_better, each, old) for each, old in zip((least, index), carried, strict=True)]

        numbers, firsts = self._walked(f, [constant(-math.inf, floats), constant(0, index_type)], step)
        best = fold_lanes(f, numbers, largest_number)
        lanes = Value("<" + ", ".join(f"i32 {lane}" for lane in range(self.lanes)) + ">", index_type)
        is_best = f.compare("oeq", numbers, f.splat(best, self.lanes))
        keys = f.select(is_best, f.binary("add", firsts, lanes), constant(2**31 - 1, index_type))
        key = f.call(f"llvm.vector.reduce.umin.{mangled(index_type)}", [keys], "i32")
        return best, f.convert("zext", key, "i64")

    def _key_range(self, f: Function, best: Value, key: Value) -> tuple[Value, Value]:
        """Emit the range of keys outside of which weights are provably 0 relative to ``key``; else all keys."""
        queries, keys, values = f.parameters[:3]
        none, limit = constant(-math.inf, vector(self.lanes)), f.fadd(best, constant(NO_WEIGHT, "float"))

        def step(column: Index, count: int, carried: Sequence[Value]) -> list[Value]:
            """Update the range and the largest mask numbers before and behind it."""
            begin, end, before, behind = carried
            may_attend, found = self._may_attend(f, column, count, limit)
            is_first = f.binary("and", may_attend, f.compare("eq", begin, as_value(self.keys)))
            begin = f.select(is_first, as_value(column), begin)
            is_before = f.compare("eq", begin, as_value(self.keys))
            end = f.select(may_attend, as_value(f.add(column, count)), end)
            before = f.select(is_before, largest_number(f, [before, found]), before)
            behind = f.select(may_attend, none, largest_number(f, [behind, found]))
            return [begin, end, before, behind]

        begin, end, before, behind = self._walked(f, [as_value(self.keys), as_value(0), none, none], step)
        highest = fold_lanes(f, largest_number(f, [before, behind]), largest_number)
        of_queries = max_abs(f, queries, self.query.row, self.rows, self.width, lanes=self.lanes)
        reach = f.fmul(f.fmul(of_queries, self._largest_key(f, keys, key, (begin, end))), self._size)
        # Two scores differ by at most twice the reach; the third covers rounding.
        bound = f.fsub(limit, f.fmul(reach, constant(3.0, "float")))
        conditions = [
            f.compare("ole", highest, bound),
            *(is_finite(f, each) for each in self._excluded_values(f, values, begin, end)),
            f.compare("olt", reach, constant(LARGEST, "float")),
            f.compare("olt", absolute(f, best), constant(LARGEST, "float")),
        ]
        is_sure = reduce(lambda a, b: f.binary("and", a, b), conditions)
        return f.select(is_sure, begin, as_value(0)), f.select(is_sure, end, as_value(self.keys))

    def _walked(
        self, f: Function, carry: Sequence[Value], step: Callable[[Index, int, Sequence[Value]], list[Value]]
    ) -> Sequence[Value]:
        """Emit ``step(column, count, carried)`` for all keys, a vector at a time."""
        with f.loop(0, self.keys // self.lanes * self.lanes, self.lanes, carry=carry) as loop:
            loop.carry(step(loop.index, self.lanes, loop.carried))
        return step(*self._last, loop.results) if self._has_rest else loop.results

    @property
    def _last(self) -> tuple[int, int]:
        """Return the last keys: the remainder, or with a dynamic number of keys a vector shifted back."""
        if not isinstance(self.keys, int):
            return self.keys - self.lanes, self.lanes
        begin = (self.keys - 1) // self.lanes * self.lanes
        return begin, self.keys - begin

    @property
    def _has_rest(self) -> bool:
        """Return whether there may be keys behind the whole vectors."""
        return not isinstance(self.keys, int) or self.keys % self.lanes > 0

    @property
    def _size(self) -> Value:
        """Return the factor that bounds a score by the largest elements of query and key."""
        return constant(self.width * abs(self.scale), "float")

    @property
    def _lines(self) -> int:
        """Return the rows of the masks that a tile reads."""
        return self.rows if any(each.matrix.row for each in self.masks) else 1

    def _least(self, f: Function, column: Index, count: int) -> Value:
        """Emit the smallest mask number of some keys over all rows."""
        with f.loop(0, self._lines, carry=[constant(math.inf, vector(self.lanes))]) as row:
            row.carry([minimum(f, row.carried[0], self._numbers(f, row.index, column, count))])
        return row.results[0]

    def _may_attend(self, f: Function, column: Index, count: int, limit: Value) -> tuple[Value, Value]:
        """Emit whether any row may attend to some keys, and the largest mask number otherwise."""
        none = constant(0, vector(self.lanes, "i1"))
        with f.loop(0, self._lines, carry=[none, constant(-math.inf, vector(self.lanes))]) as row:
            numbers = self._numbers(f, row.index, column, count)
            above = f.compare("ugt", numbers, f.splat(limit, self.lanes))
            highest = largest_number(f, [numbers, row.carried[1]])
            row.carry([f.binary("or", row.carried[0], above), highest])
        return f.any(row.results[0]), row.results[1]

    def _numbers(self, f: Function, row: Index, column: Index, count: int) -> Value:
        """Emit the numbers masks add to scores or replace them with; -inf in lanes behind the last key."""
        numbers = constant(0.0, vector(self.lanes))
        for mask, base in zip(self.masks, f.parameters[4:], strict=True):
            at = f.at(base, f.add(f.mul(row, mask.matrix.row), column), mask.size)
            numbers = self._masked(f, numbers, mask, at, count)
        nothing = constant(-math.inf, numbers.type)
        return numbers if count == self.lanes else f.select(lanes_below(count, self.lanes), numbers, nothing)

    def _masked(self, f: Function, numbers: Value, mask: Mask, at: Value, count: int) -> Value:
        if mask.kind == "add":
            return f.fadd(numbers, f.load_lanes(numbers.type, at, count))
        return mask.applied(f, numbers, f.load_bytes(at, self.lanes, count))

    def _excluded_values(self, f: Function, values: Value, begin: Value, end: Value) -> list[Value]:
        """Emit the largest absolute values among the excluded values, before and behind the range."""
        pitch, behind = self.value.row, f.at(values, f.mul(end, self.value.row))
        spans = (values, begin), (behind, f.sub(self.keys, end))
        return [max_abs(f, at, pitch, count, self.values, lanes=self.lanes) for at, count in spans]

    def _largest_key(self, f: Function, keys: Value, key: Value, key_range: tuple[Value, Value]) -> Value:
        """Emit the largest absolute value among the best key and the excluded keys."""
        pitch, lanes, (begin, end) = self.key.row, self.lanes, key_range
        if pitch != 1:
            spans = (0, begin), (end, f.sub(self.keys, end)), (key, 1)
            found = [
                max_abs(f, f.at(keys, f.mul(at, pitch)), pitch, count, self.width, lanes=lanes) for at, count in spans
            ]
            return maximum(f, maximum(f, found[0], found[1]), found[2])
        whole = self.keys // lanes * lanes
        with f.loop(0, self.width, carry=[zero_bits(lanes)]) as column:
            line = f.at(keys, f.mul(column.index, self.key.column))
            carried = max_abs_bits(f, column.carried[0], f.at(line, key), 1, lanes)
            if self._has_rest:
                last, count = self._last
                carried = max_abs_bits(f, carried, f.at(line, last), count, lanes)
            for first, stop in ((0, f.minimum(begin, whole)), (end, whole)):
                with f.loop(first, stop, lanes, carry=[carried]) as part:
                    part.carry([max_abs_bits(f, part.carried[0], f.at(line, part.index), lanes, lanes)])
                (carried,) = part.results
            column.carry([carried])
        return max_abs_of_lanes(f, column.results[0])
