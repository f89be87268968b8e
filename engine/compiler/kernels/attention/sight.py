"""How many keys a tile of queries has to look at, told from its mask: those at the end without weight are left out.

Sequences that are padded, and causal masks that a graph spells out, end like this. Whether a key has weight depends on
its score too, so scores are bounded by the largest elements of queries and keys; and as no weight times infinity is
NaN, values that are left out must be finite. Where that cannot be told, all keys are looked at.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.compiler.codegen.ir import Function, Index, Module, Value, as_value, constant, lanes_below, mangled, vector
from engine.compiler.kernels.attention.rows import Mask
from engine.compiler.kernels.folding import fold_lanes, largest_number, load_or
from engine.compiler.kernels.functions.arithmetic import absolute, bits, from_bits, integer, maximum, minimum
from engine.compiler.kernels.products.matrix import Matrix

# e to the power of less is no weight beside that of the largest score.
NO_WEIGHT = -90.0
# Scores and masks of the first key beyond this are not reckoned with.
LARGEST = 1e30


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """The function that tells.

    Args:
        rows: queries of a tile.
        keys, width, values: of the attention; there are more keys than lanes.
        query, key, value: where they lie: queries and values in rows, keys in rows or in columns.
        mask: the only one, with a number for every key.
        scale: of the scores.
    """

    rows: int
    keys: int
    width: int
    values: int
    query: Matrix
    key: Matrix
    value: Matrix
    mask: Mask
    scale: float
    lanes: int

    def emit(self, module: Module, name: str) -> str:
        """Write (queries, keys, values, mask) -> how many keys, from the first one on; its name."""
        parameters = [("ptr", each) for each in ("queries", "keys", "values", "mask")]
        f = module.inner(name, parameters, result="i64")
        mask = f.parameters[3]
        first = self._of_first_key(f, mask)
        limit = f.fadd(first, constant(NO_WEIGHT, "float"))
        seen, _ = self._looked(f, mask, *self._last, limit)
        (result,) = f.chosen(
            [as_value(self.keys)], f.binary("xor", seen, constant(1, "i1")), lambda: [self._told(f, first, limit)]
        )
        f.finish(result)
        return name

    def _told(self, f: Function, first: Value, limit: Value) -> Value:
        """The number, where the last keys may have no weight."""
        queries, keys, values, mask = f.parameters
        type_, whole = vector(self.lanes), self.keys // self.lanes * self.lanes
        nothing = constant(-math.inf, type_)

        def step(column: Index, count: int, carried: list[Value]) -> list[Value]:
            """Keys up to the last that are seen, and the masks of those behind it."""
            behind, highest = carried
            is_seen, found = self._looked(f, mask, column, count, limit)
            end = as_value(f.add(column, count))
            return [f.select(is_seen, end, behind), f.select(is_seen, nothing, largest_number(f, [highest, found]))]

        with f.loop(0, whole, self.lanes, carry=[as_value(0), nothing]) as loop:
            loop.carry(step(loop.index, self.lanes, loop.carried))
        behind, highest = step(*self._last, loop.results) if self._has_rest else loop.results
        of_queries = self._largest_of(f, queries, self.query.row, self.rows, self.width)
        of_values = self._largest_of(f, f.at(values, f.mul(behind, self.value.row)), self.value.row,
                                     f.sub(self.keys, behind), self.values)  # fmt: skip
        reach = f.fmul(f.fmul(of_queries, self._largest_key(f, keys, behind)), self._size)
        # Twice the reach is the difference of two scores; the third is for rounding.
        bound = f.fsub(limit, f.fmul(reach, constant(3.0, "float")))
        conditions = [
            f.compare("ole", fold_lanes(f, highest, largest_number), bound),
            f.compare("olt", of_values, constant(math.inf, "float")),
            f.compare("olt", reach, constant(LARGEST, "float")),
            f.compare("olt", absolute(f, first), constant(LARGEST, "float")),
        ]
        is_sure = conditions[0]
        for each in conditions[1:]:
            is_sure = f.binary("and", is_sure, each)
        return f.select(is_sure, behind, as_value(self.keys))

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
        """Rows of the mask that a tile reads."""
        return self.rows if self.mask.matrix.row else 1

    def _of_first_key(self, f: Function, mask: Value) -> Value:
        """The least that is done to the score of the first key."""
        with f.loop(0, self._lines, carry=[constant(math.inf, "float")]) as row:
            at = f.at(mask, f.mul(row.index, self.mask.matrix.row), self.mask.size)
            row.carry([minimum(f, row.carried[0], self._numbers(f, at, 1, 1))])
        return row.results[0]

    def _looked(self, f: Function, mask: Value, column: Index, count: int, limit: Value) -> tuple[Value, Value]:
        """Whether any line sees one of some keys, and else the most that is done to their scores."""
        none = constant(0, vector(self.lanes, "i1"))
        with f.loop(0, self._lines, carry=[none, constant(-math.inf, vector(self.lanes))]) as row:
            at = f.at(mask, f.add(f.mul(row.index, self.mask.matrix.row), column), self.mask.size)
            numbers = self._numbers(f, at, count, self.lanes)
            above = f.compare("ugt", numbers, f.splat(limit, self.lanes))
            highest = largest_number(f, [numbers, row.carried[1]])
            row.carry([f.binary("or", row.carried[0], above), highest])
        return f.any(row.results[0]), row.results[1]

    def _numbers(self, f: Function, at: Value, count: int, lanes: int) -> Value:
        """What a mask adds to scores, or stands in their place; -inf in lanes behind the last key."""
        if self.mask.kind == "add":
            return load_or(f, at, lanes, count, -math.inf)
        byte = f.load_bytes(at, lanes, count)
        is_on = f.compare("ne", byte, constant(0, byte.type))
        type_ = vector(lanes)
        kept, dropped = constant(0.0, type_), constant(self.mask.fill, type_)
        numbers = f.select(is_on, *((kept, dropped) if self.mask.kind == "keep" else (dropped, kept)))
        return numbers if count == lanes else f.select(lanes_below(count, lanes), numbers, constant(-math.inf, type_))

    def _largest_of(self, f: Function, base: Value, pitch: int, rows: Index, columns: int) -> Value:
        """The largest magnitude in some rows; NaN if one is."""
        with f.loop(0, rows, carry=[constant(0, vector(self.lanes, "i32"))]) as row:
            line, carried = f.at(base, f.mul(row.index, pitch)), row.carried[0]
            for column in range(0, columns, self.lanes):
                carried = self._larger(f, carried, f.at(line, column), min(self.lanes, columns - column))
            row.carry([carried])
        return self._folded(f, row.results[0])

    def _largest_key(self, f: Function, keys: Value, behind: Value) -> Value:
        """The largest magnitude in the first key and in those that would be left out."""
        pitch, none = self.key.row, constant(0, vector(self.lanes, "i32"))
        if pitch != 1:
            left_out = f.sub(self.keys, behind)
            first = self._largest_of(f, keys, pitch, 1, self.width)
            others = self._largest_of(f, f.at(keys, f.mul(behind, pitch)), pitch, left_out, self.width)
            return maximum(f, first, others)
        whole = self.keys // self.lanes * self.lanes
        with f.loop(0, self.width, carry=[none]) as column:
            line = f.at(keys, f.mul(column.index, self.key.column))
            carried = self._larger(f, column.carried[0], line, 1)
            if self._has_rest:
                last, count = self._last
                carried = self._larger(f, carried, f.at(line, last), count)
            with f.loop(behind, whole, self.lanes, carry=[carried]) as key:
                key.carry([self._larger(f, key.carried[0], f.at(line, key.index), self.lanes)])
            column.carry(key.results)
        return self._folded(f, column.results[0])

    def _larger(self, f: Function, carried: Value, at: Value, count: int) -> Value:
        """The bits of the larger magnitudes: as integers, those of NaN are above those of infinity."""
        magnitude = integer(f, "and", bits(f, f.load_lanes(vector(self.lanes), at, count)), 0x7FFFFFFF)
        return f.intrinsic("umax", carried, magnitude)

    def _folded(self, f: Function, found: Value) -> Value:
        name = f"llvm.vector.reduce.umax.{mangled(found.type)}"
        return from_bits(f, f.call(name, [found], "i32"))
