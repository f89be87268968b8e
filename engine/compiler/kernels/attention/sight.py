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
from engine.compiler.kernels.attention.magnitude import is_finite, larger, largest, largest_of, nothing
from engine.compiler.kernels.attention.rows import Mask
from engine.compiler.kernels.folding import fold_lanes, largest_number
from engine.compiler.kernels.functions.arithmetic import absolute, maximum, minimum
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
        none, limit = constant(-math.inf, vector(self.lanes)), f.fadd(best, constant(NO_WEIGHT, "float"))

        def step(column: Index, count: int, carried: Sequence[Value]) -> list[Value]:
            """The first key that is seen and the end, and the masks of those before and behind."""
            begin, end, before, behind = carried
            is_seen, found = self._looked(f, column, count, limit)
            here = f.binary("and", is_seen, f.compare("eq", begin, as_value(self.keys)))
            begin = f.select(here, as_value(column), begin)
            is_before = f.compare("eq", begin, as_value(self.keys))
            end = f.select(is_seen, as_value(f.add(column, count)), end)
            before = f.select(is_before, largest_number(f, [before, found]), before)
            behind = f.select(is_seen, none, largest_number(f, [behind, found]))
            return [begin, end, before, behind]

        begin, end, before, behind = self._walked(f, [as_value(self.keys), as_value(0), none, none], step)
        highest = fold_lanes(f, largest_number(f, [before, behind]), largest_number)
        of_queries = largest_of(f, queries, self.query.row, self.rows, self.width, lanes=self.lanes)
        reach = f.fmul(f.fmul(of_queries, self._largest_key(f, keys, key, (begin, end))), self._size)
        # Twice the reach is the difference of two scores; the third is for rounding.
        bound = f.fsub(limit, f.fmul(reach, constant(3.0, "float")))
        conditions = [
            f.compare("ole", highest, bound),
            *(is_finite(f, each) for each in self._left_values(f, values, begin, end)),
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
        return mask.applied(f, numbers, f.load_bytes(at, self.lanes, count))

    def _left_values(self, f: Function, values: Value, begin: Value, end: Value) -> list[Value]:
        """The largest magnitudes in the values before and behind those that are seen."""
        pitch, behind = self.value.row, f.at(values, f.mul(end, self.value.row))
        spans = (values, begin), (behind, f.sub(self.keys, end))
        return [largest_of(f, at, pitch, count, self.values, lanes=self.lanes) for at, count in spans]

    def _largest_key(self, f: Function, keys: Value, key: Value, seen: tuple[Value, Value]) -> Value:
        """The largest magnitude in a key and in those that would be left out."""
        pitch, lanes, (begin, end) = self.key.row, self.lanes, seen
        if pitch != 1:
            spans = (0, begin), (end, f.sub(self.keys, end)), (key, 1)
            found = [
                largest_of(f, f.at(keys, f.mul(at, pitch)), pitch, count, self.width, lanes=lanes)
                for at, count in spans
            ]
            return maximum(f, maximum(f, found[0], found[1]), found[2])
        whole = self.keys // lanes * lanes
        with f.loop(0, self.width, carry=[nothing(lanes)]) as column:
            line = f.at(keys, f.mul(column.index, self.key.column))
            carried = larger(f, column.carried[0], f.at(line, key), 1, lanes)
            if self._has_rest:
                last, count = self._last
                carried = larger(f, carried, f.at(line, last), count, lanes)
            for first, stop in ((0, f.minimum(begin, whole)), (end, whole)):
                with f.loop(first, stop, lanes, carry=[carried]) as part:
                    part.carry([larger(f, part.carried[0], f.at(line, part.index), lanes, lanes)])
                (carried,) = part.results
            column.carry([carried])
        return largest(f, column.results[0])
