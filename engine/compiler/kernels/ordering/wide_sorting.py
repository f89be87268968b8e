"""Sort and top-k of rows of 64-bit elements, with the original indices.

Every element becomes an unsigned key of the same order; NaN has the largest. Short rows are sorted by counting the
smaller elements, long ones by a radix sort of keys and indices that skips digits equal in all keys. The sort is stable.

Arguments: source, indices (int64), elements, scratch.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.compiler.codegen.ir import Function, Index, Module, Value, as_value, constant, lanes_of, vector
from engine.compiler.kernels.folding import fold_lanes
from engine.compiler.kernels.kernel import block_of, start
from engine.compiler.kernels.ordering.sorting import Sorting, added, clear

WIDE = ("int64", "uint64", "float64")
"""Dtypes of 64 bits."""
_SIGN = -(2**63)
# Bits of a digit; the last digit has the remainder of 64.
_BITS = 11
_BINS = 1 << _BITS


@dataclass(frozen=True, kw_only=True)
class WideSorting(Sorting):
    """Elements at some positions of each sorted row; ``middle`` only for integers, which have no NaN."""

    @property
    def scratch(self) -> int:
        return 1 if self.is_short else 4 * self.width * self.chunks

    def emit(self, module: Module) -> None:
        f, (source, indices, elements, scratch), chunk = start(module, self, 4)
        if self.is_short:
            keys = f.reserve(self.width, 8)
        else:
            keys, bins = f.at(scratch, f.mul(chunk, 4 * self.width), 8), f.reserve(_BINS)
        wanted = self.first if self.middle == "none" else (self.columns - 1) // 2
        with f.loop(*block_of(f, chunk, self.block, self.rows)) as row:
            line = f.at(source, f.mul(row.index, self.source), 8)
            out = f.mul(row.index, self.count)
            target = f.at(indices, out, 8), f.at(elements, out, 8)
            self._keys(f, line, keys)
            if self.is_short:
                self._counted(f, line, keys, wanted, target)
            else:
                self._by_digits(f, line, keys, bins, wanted, target)
        f.finish()

    def _keys(self, f: Function, line: Value, keys: Value) -> None:
        """Store the key of every element, padded with the largest key."""
        whole = self.columns // self.lanes * self.lanes
        if whole:
            with f.loop(0, whole, self.lanes) as loop:
                bits = f.load(vector(self.lanes, "i64"), f.at(line, loop.index, 8), 8)
                f.store(self._key(f, bits), f.at(keys, loop.index, 8), 8)
        for column in range(whole, self.columns):
            f.store(self._key(f, f.load("i64", f.at(line, column, 8), 8)), f.at(keys, column, 8), 8)
        for column in range(self.columns, self.width):
            f.store(constant(-1, "i64"), f.at(keys, column, 8), 8)

    def _key(self, f: Function, bits: Value) -> Value:
        sign, inverted = constant(_SIGN, bits.type), constant(-1, bits.type)
        if self.dtype == "float64":
            x = f.convert("bitcast", bits, vector(lanes_of(bits.type), "double"))
            bits = f.convert("bitcast", f.fadd(x, constant(0.0, x.type)), bits.type)  # -0 is 0
            below = f.compare("slt", bits, constant(0, bits.type))
            bits = f.binary("xor", bits, f.select(below, inverted, sign))
            bits = f.select(f.compare("uno", x, x), inverted, bits)
        elif self.dtype == "int64":
            bits = f.binary("xor", bits, sign)
        return f.binary("xor", bits, inverted) if self.is_descending else bits

    def _counted(self, f: Function, line: Value, keys: Value, wanted: int, target: tuple[Value, Value]) -> None:
        """Write every wanted element to its rank: the number of elements before it."""
        lanes = self.lanes
        type_ = vector(lanes, "i64")
        with f.loop(0, self.columns) as each:
            key = f.splat(f.load("i64", f.at(keys, each.index, 8), 8), lanes)
            first = f.mul(f.divmod(each.index, lanes)[0], lanes)
            # Equal keys to the left come before; in the element's own vector, only some lanes.
            before = self._tallied(f, keys, key, (0, first), "ule", constant(0, type_))
            before = self._among(f, f.load(type_, f.at(keys, first, 8), 8), key, f.sub(each.index, first), before)
            before = self._tallied(f, keys, key, (f.add(first, lanes), self.width), "ult", before)
            rank = f.sub(fold_lanes(f, before, added), wanted)
            with f.when(f.compare("ult", as_value(rank), constant(self.count, "i64"))):
                _write(f, line, as_value(each.index), target, rank)

    def _tallied(
        self, f: Function, keys: Value, key: Value, bounds: tuple[Index, Index], how: str, total: Value
    ) -> Value:
        """Count the keys in a range that compare so, lane by lane, on top of ``total``."""
        with f.loop(*bounds, self.lanes, carry=[total]) as loop:
            others = f.load(key.type, f.at(keys, loop.index, 8), 8)
            found = f.convert("zext", f.compare(how, others, key), key.type)
            loop.carry([f.binary("add", loop.carried[0], found)])
        return loop.results[0]

    def _among(self, f: Function, others: Value, key: Value, lane: Index, total: Value) -> Value:
        """Count the keys of the element's own vector that come before it."""
        steps = Value("<" + ", ".join(f"i64 {k}" for k in range(self.lanes)) + ">", key.type)
        is_in_front = f.compare("slt", steps, f.splat(as_value(lane), self.lanes))
        is_equal = f.binary("and", f.compare("eq", others, key), is_in_front)
        found = f.binary("or", f.compare("ult", others, key), is_equal)
        return f.binary("add", total, f.convert("zext", found, key.type))

    def _by_digits(
        self, f: Function, line: Value, keys: Value, bins: Value, wanted: int, target: tuple[Value, Value]
    ) -> None:
        """Sort keys and indices by digits, alternating between two buffers."""
        other = f.at(keys, 2 * self.width, 8)
        with f.loop(0, self.columns) as each:
            f.store(as_value(each.index), f.at(keys, f.add(each.index, self.width), 8), 8)
        source, destination = keys, other
        for low in range(0, 64, _BITS):
            clear(f, bins, _BINS)
            self._tally(f, source, low, bins)
            first = f.load("i32", f.at(bins, _digit(f, f.load("i64", source, 8), low)))
            is_shared = f.compare("eq", first, constant(self.columns, "i32"))
            with f.unless(is_shared):
                self._distribute(f, source, destination, low, bins)
            source, destination = f.select(is_shared, source, destination), f.select(is_shared, destination, source)
        with f.loop(0, self.count) as each:
            source_index = f.load("i64", f.at(source, f.add(each.index, wanted + self.width), 8), 8)
            _write(f, line, source_index, target, each.index)

    def _tally(self, f: Function, keys: Value, low: int, bins: Value) -> None:
        with f.loop(0, self.columns) as each:
            at = f.at(bins, _digit(f, f.load("i64", f.at(keys, each.index, 8), 8), low))
            f.store(f.binary("add", f.load("i32", at), constant(1, "i32")), at)

    def _distribute(self, f: Function, source: Value, target: Value, low: int, bins: Value) -> None:
        """Move keys and indices in the order of a digit; counts become the next position of each digit."""
        with f.loop(0, _BINS, carry=[constant(0, "i32")]) as each:
            at = f.at(bins, each.index)
            count = f.load("i32", at)
            f.store(each.carried[0], at)
            each.carry([f.binary("add", each.carried[0], count)])
        with f.loop(0, self.columns) as each:
            key = f.load("i64", f.at(source, each.index, 8), 8)
            source_index = f.load("i64", f.at(source, f.add(each.index, self.width), 8), 8)
            at = f.at(bins, _digit(f, key, low))
            to = f.load("i32", at)
            f.store(f.binary("add", to, constant(1, "i32")), at)
            goal = f.convert("zext", to, "i64")
            f.store(key, f.at(target, goal, 8), 8)
            f.store(source_index, f.at(target, f.add(goal, self.width), 8), 8)


def _digit(f: Function, key: Value, low: int) -> Value:
    shifted = f.binary("lshr", key, constant(low, "i64"))
    return f.binary("and", shifted, constant(_BINS - 1, "i64"))


def _write(f: Function, line: Value, source_index: Value, target: tuple[Value, Value], index: Index) -> None:
    """Store an element and its index at a position of the result."""
    indices, elements = target
    f.store(source_index, f.at(indices, index, 8), 8)
    f.store(f.load("i64", f.at(line, source_index, 8), 8), f.at(elements, index, 8), 8)
