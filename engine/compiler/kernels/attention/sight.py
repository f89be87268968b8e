"""Which keys a tile of queries has to look at, told from its masks: those without weight at either end are left out.

Sequences that are padded in front or behind, windows, and causal masks that a graph spells out are like this. Whether
a key has weight depends on its score too, so scores are bounded by the largest elements of queries and keys; and as no
weight times infinity is NaN, values that are left out must be finite. Where that cannot be told, all are looked at.

Keys are held against the one that all queries of the tile may look at, as far as masks say: its least number is the
largest there is.
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

# e to the power of less is no weight beside that of the largest score.
NO_WEIGHT = -90.0
# Scores and masks of the first key beyond this are not reckoned with.
LARGEST = 1e30


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """The function that tells; of every tile ``SPAN`` numbers: the first key that is seen, and the end.

    Args:
        rows: queries of a tile.
        keys, width, values: of the attention; there are more keys than lanes.
        query, key, value: where they lie: queries and values in rows, keys in rows or in columns.
        masks: one at least, each with something for every key.
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
        """Write (queries, keys, values, span, masks), which stores them; its name."""
        masks = (f"mask{k}" for k in range(len(self.masks)))
        f = module.inner(name, [("ptr", each) for each in ("queries", "keys", "values", "span", *masks)])
        span = f.parameters[3]
        self._keep(f, span, as_value(0), as_value(self.keys))
        with f.unless(self._is_open_at_both_ends(f)):
            self._keep(f, span, *self._told(f, *self._best_key(f)))
        f.finish()
        return name

    def _keep(self, f: Function, span: Value, begin: Value, end: Value) -> None:
        for place, each in enumerate((begin, end)):
            f.store(each, f.at(span, place, 8), 8)

    def _is_open_at_both_ends(self, f: Function) -> Value:
        """Whether the first keys may have weight and the last as well, as is usual: then all are looked at."""
        limit = constant(NO_WEIGHT, "float")
        (begins, _), (ends, _) = (self._looked(f, *each, limit) for each in ((0, self.lanes), self._last))
        return f.binary("and", begins, ends)

    def _best_key(self, f: Function) -> tuple[Value, Value]:
        """The largest of the least numbers that keys are given, of all lines, and the key."""
        floats, places = vector(self.lanes), vector(self.lanes, "i32")

        def step(column: Index, count: int, carried: Sequence[Value]) -> list[Value]:
            least = self._least(f, column, count)
            is_better = f.compare("ogt", least, carried[0])
            place = f.splat(f.convert("trunc", as_value(column), "i32"), self.lanes)
            return [f.select(is_better, each, old) for each, old in zip((least, place), carried, strict=True)]

        numbers, firsts = self._walked(f, [constant(-math.inf, floats), constant(0, places)], step)
        best = fold_lanes(f, numbers, largest_number)
        lanes = Value("<" + ", ".join(f"i32 {lane}" for lane in range(self.lanes)) + ">", places)
        is_best = f.compare("oeq", numbers, f.splat(best, self.lanes))
        keys = f.select(is_best, f.binary("add", firsts, lanes), constant(2**31 - 1, places))
        key = f.call(f"llvm.vector.reduce.umin.{mangled(places)}", [keys], "i32")
        return best, f.convert("zext", key, "i64")

    def _told(self, f: Function, best: Value, key: Value) -> tuple[Value, Value]:
        """The first key that is seen and the end, where others have no weight for sure beside a key; else all."""
        queries, keys, values = f.parameters[:3]
        nothing, limit = constant(-math.inf, vector(self.lanes)), f.fadd(best, constant(NO_WEIGHT, "float"))

        def step(column: Index, count: int, carried: Sequence[Value]) -> list[Value]:
            """The first key that is seen and the end, and the masks of those before and behind."""
            begin, end, before, behind = carried
            is_seen, found = self._looked(f, column, count, limit)
            here = f.binary("and", is_seen, f.compare("eq", begin, as_value(self.keys)))
            begin = f.select(here, as_value(column), begin)
            is_before = f.compare("eq", begin, as_value(self.keys))
            end = f.select(is_seen, as_value(f.add(column, count)), end)
            before = f.select(is_before, largest_number(f, [before, found]), before)
            behind = f.select(is_seen, nothing, largest_number(f, [behind, found]))
            return [begin, end, before, behind]

        begin, end, before, behind = self._walked(f, [as_value(self.keys), as_value(0), nothing, nothing], step)
        highest = fold_lanes(f, largest_number(f, [before, behind]), largest_number)
        of_queries = self._largest_of(f, queries, self.query.row, self.rows, self.width)
        reach = f.fmul(f.fmul(of_queries, self._largest_key(f, keys, key, (begin, end))), self._size)
        # Twice the reach is the difference of two scores; the third is for rounding.
        bound = f.fsub(limit, f.fmul(reach, constant(3.0, "float")))
        conditions = [
            f.compare("ole", highest, bound),
            *(f.compare("olt", each, constant(math.inf, "float")) for each in self._left_values(f, values, begin, end)),
            f.compare("olt", reach, constant(LARGEST, "float")),
            f.compare("olt", absolute(f, best), constant(LARGEST, "float")),
        ]
        is_sure = reduce(lambda a, b: f.binary("and", a, b), conditions)
        return f.select(is_sure, begin, as_value(0)), f.select(is_sure, end, as_value(self.keys))

    def _walked(
        self, f: Function, carry: Sequence[Value], step: Callable[[Index, int, Sequence[Value]], list[Value]]
    ) -> Sequence[Value]:
        """``step(column, count, carried)`` for all keys, a vector at a time."""
        with f.loop(0, self.keys // self.lanes * self.lanes, self.lanes, carry=carry) as loop:
            loop.carry(step(loop.index, self.lanes, loop.carried))
        return step(*self._last, loop.results) if self._has_rest else loop.results

    @property
    def _last(self) -> tuple[int, int]:
        """The last keys: those behind whole vectors, or, where code does not know how many, a vector shifted back."""
        if not isinstance(self.keys, int):
            return self.keys - self.lanes, self.lanes
        begin = (self.keys - 1) // self.lanes * self.lanes
        return begin, self.keys - begin

    @property
    def _has_rest(self) -> bool:
        """Whether there are keys behind the whole vectors, or may be."""
        return not isinstance(self.keys, int) or self.keys % self.lanes > 0

    @property
    def _size(self) -> Value:
        """What the largest of queries and of keys are multiplied by."""
        return constant(self.width * abs(self.scale), "float")

    @property
    def _lines(self) -> int:
        """Rows of the masks that a tile reads."""
        return self.rows if any(each.matrix.row for each in self.masks) else 1

    def _least(self, f: Function, column: Index, count: int) -> Value:
        """The least that is done to the scores of some keys, of all lines."""
        with f.loop(0, self._lines, carry=[constant(math.inf, vector(self.lanes))]) as row:
            row.carry([minimum(f, row.carried[0], self._numbers(f, row.index, column, count))])
        return row.results[0]

    def _looked(self, f: Function, column: Index, count: int, limit: Value) -> tuple[Value, Value]:
        """Whether any line sees one of some keys, and else the most that is done to their scores."""
        none = constant(0, vector(self.lanes, "i1"))
        with f.loop(0, self._lines, carry=[none, constant(-math.inf, vector(self.lanes))]) as row:
            numbers = self._numbers(f, row.index, column, count)
            above = f.compare("ugt", numbers, f.splat(limit, self.lanes))
            highest = largest_number(f, [numbers, row.carried[1]])
            row.carry([f.binary("or", row.carried[0], above), highest])
        return f.any(row.results[0]), row.results[1]

    def _numbers(self, f: Function, row: Index, column: Index, count: int) -> Value:
        """What masks add to scores, or put in their place; -inf in lanes behind the last key."""
        numbers = constant(0.0, vector(self.lanes))
        for mask, base in zip(self.masks, f.parameters[4:], strict=True):
            at = f.at(base, f.add(f.mul(row, mask.matrix.row), column), mask.size)
            numbers = self._masked(f, numbers, mask, at, count)
        nothing = constant(-math.inf, numbers.type)
        return numbers if count == self.lanes else f.select(lanes_below(count, self.lanes), numbers, nothing)

    def _masked(self, f: Function, numbers: Value, mask: Mask, at: Value, count: int) -> Value:
        if mask.kind == "add":
            return f.fadd(numbers, f.load_lanes(numbers.type, at, count))
        byte = f.load_bytes(at, self.lanes, count)
        is_on, dropped = f.compare("ne", byte, constant(0, byte.type)), constant(mask.fill, numbers.type)
        return f.select(is_on, *((numbers, dropped) if mask.kind == "keep" else (dropped, numbers)))

    def _largest_of(self, f: Function, base: Value, pitch: int, rows: Index, columns: int) -> Value:
        """The largest magnitude in some rows; NaN if one is."""
        with f.loop(0, rows, carry=[constant(0, vector(self.lanes, "i32"))]) as row:
            line, carried = f.at(base, f.mul(row.index, pitch)), row.carried[0]
            for column in range(0, columns, self.lanes):
                carried = self._larger(f, carried, f.at(line, column), min(self.lanes, columns - column))
            row.carry([carried])
        return self._folded(f, row.results[0])

    def _left_values(self, f: Function, values: Value, begin: Value, end: Value) -> list[Value]:
        """The largest magnitudes in the values before and behind those that are seen."""
        pitch, behind = self.value.row, f.at(values, f.mul(end, self.value.row))
        spans = (values, begin), (behind, f.sub(self.keys, end))
        return [self._largest_of(f, at, pitch, count, self.values) for at, count in spans]

    def _largest_key(self, f: Function, keys: Value, key: Value, seen: tuple[Value, Value]) -> Value:
        """The largest magnitude in a key and in those that would be left out."""
        pitch, none, (begin, end) = self.key.row, constant(0, vector(self.lanes, "i32")), seen
        if pitch != 1:
            spans = (0, begin), (end, f.sub(self.keys, end)), (key, 1)
            found = [self._largest_of(f, f.at(keys, f.mul(at, pitch)), pitch, n, self.width) for at, n in spans]
            return maximum(f, maximum(f, found[0], found[1]), found[2])
        whole = self.keys // self.lanes * self.lanes
        with f.loop(0, self.width, carry=[none]) as column:
            line = f.at(keys, f.mul(column.index, self.key.column))
            carried = self._larger(f, column.carried[0], f.at(line, key), 1)
            if self._has_rest:
                last, count = self._last
                carried = self._larger(f, carried, f.at(line, last), count)
            for first, stop in ((0, f.minimum(begin, whole)), (end, whole)):
                with f.loop(first, stop, self.lanes, carry=[carried]) as part:
                    part.carry([self._larger(f, part.carried[0], f.at(line, part.index), self.lanes)])
                (carried,) = part.results
            column.carry([carried])
        return self._folded(f, column.results[0])

    def _larger(self, f: Function, carried: Value, at: Value, count: int) -> Value:
        """The bits of the larger magnitudes: as integers, those of NaN are above those of infinity."""
        magnitude = integer(f, "and", bits(f, f.load_lanes(vector(self.lanes), at, count)), 0x7FFFFFFF)
        return f.intrinsic("umax", carried, magnitude)

    def _folded(self, f: Function, found: Value) -> Value:
        name = f"llvm.vector.reduce.umax.{mangled(found.type)}"
        return from_bits(f, f.call(name, [found], "i32"))
