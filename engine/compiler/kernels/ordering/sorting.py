"""Sort and top-k of rows, with the original indices.

Every element becomes a 64-bit number, its value above its index: no two are equal, so every algorithm is stable. NaN
exceeds all numbers, and -0 equals 0. The first few are selected one by one. Short rows are sorted by counting the
smaller elements. In long rows, a histogram of the leading bits removes elements that cannot be in the result; the rest
is radix-sorted.

Arguments: source, indices (int64), elements, scratch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Self

from engine.compiler.codegen.ir import Function, Index, Module, Sizes, Value, as_value, constant, lanes_of, vector
from engine.compiler.kernels.elements import TYPES
from engine.compiler.kernels.folding import fold_lanes
from engine.compiler.kernels.kernel import Kernel, block_of, derived, start
from engine.ir.dims import largest, smallest

# Longest row sorted by counting: its quadratic comparisons then take as long as a radix sort.
COUNTED = 256
# Positions selected one by one, each in a pass over the row: at most this many, and this share of the columns.
PICKED, PICKED_SHARE = 16, 1 / 8
SORTED = ("float32", "bool", "uint8", "int8", "int16", "int32")
"""Dtypes that fit 32 bits."""
# First bit and bits of each digit of a 64-bit number, least first; the last digit has the sign.
_DIGITS = ((32, 11), (43, 10), (53, 11))
_BINS = 1 << 11
# Most chunks, each with its own scratch memory.
_MOST_CHUNKS = 16
_INDEX_MASK = (1 << 32) - 1


@dataclass(frozen=True, kw_only=True)
class Sorting(Kernel):
    """Elements at some positions of each sorted row.

    Args:
        dtype: of the elements.
        source: row stride, in elements.
        first, count: range of positions, contiguous with those of the next row.
        middle: a single position instead: ``all`` for the middle of a row without NaN, else its first NaN; ``numbers``
            for the middle of the numbers.
    """

    kind = "sort"
    dtype: str
    rows: int
    columns: int
    source: int
    first: int
    count: int
    is_descending: bool = False
    middle: Literal["none", "all", "numbers"] = "none"

    def dynamic(self, sizes: Sizes) -> Self:
        return derived(self.with_dynamic(sizes, "rows", "source"), block=sizes.dynamic_count(self.block))

    @cached_property
    def block(self) -> int:
        """Return the rows of a chunk."""
        least = largest(1, self.host.chunk_bytes // (16 * self.columns))
        return smallest(self.rows, largest(least, -(-self.rows // _MOST_CHUNKS)))

    @property
    def chunks(self) -> int:
        return -(-self.rows // self.block)

    @property
    def flops(self) -> int:
        return self.rows * self.columns

    @property
    def lanes(self) -> int:
        """Return the lanes of a vector of 64-bit numbers."""
        return max(2, self.host.lanes // 2)

    @property
    def width(self) -> int:
        """Return the numbers of a row, padded to whole vectors."""
        return -(-self.columns // self.lanes) * self.lanes

    @property
    def is_short(self) -> bool:
        """Return whether all rows are sorted by counting."""
        return self.columns <= COUNTED

    @property
    def is_picked(self) -> bool:
        """Return whether so few first positions are wanted that each is selected by itself."""
        return self.middle == "none" and self.first + self.count <= min(PICKED, PICKED_SHARE * self.columns)

    @property
    def scratch(self) -> int:
        """Return the number of 64-bit numbers of scratch memory."""
        return 1 if self.is_short else 2 * self.width * self.chunks

    def emit(self, module: Module) -> None:
        f, (source, indices, elements, scratch), chunk = start(module, self, 4)
        size = TYPES[self.dtype][1]
        if self.is_short:
            numbers, other, bins = f.reserve(self.width, 8), scratch, scratch
        else:
            numbers = f.at(scratch, f.mul(chunk, 2 * self.width), 8)
            other, bins = f.at(numbers, self.width, 8), f.reserve(_BINS)
        with f.loop(*block_of(f, chunk, self.block, self.rows)) as row:
            line = f.at(source, f.mul(row.index, self.source), size)
            out = f.mul(row.index, self.count)
            result = _Result(line, f.at(indices, out, 8), f.at(elements, out, size), size)
            missing = self._pack(f, line, numbers)
            wanted = self._wanted(f, missing)
            if self.is_picked:
                self._pick(f, numbers, result)
            elif self.is_short:
                self._count(f, numbers, self.columns, wanted, result)
            else:
                self._long(f, (numbers, other, bins), wanted, result)
        f.finish()

    def _long(self, f: Function, memory: tuple[Value, Value, Value], wanted: Index, result: _Result) -> None:
        """Remove elements that cannot be in the result, then sort by counting if few are left, else by digits."""
        numbers, other, bins = memory
        kept = self._select(f, numbers, f.add(wanted, self.count), bins)
        is_few = f.less(kept, COUNTED + 1)
        with f.when(is_few):
            self._count(f, numbers, kept, wanted, result)
        with f.unless(is_few):
            self._sort(f, numbers, other, kept, bins)
            with f.loop(0, self.count) as each:
                number = f.load("i64", f.at(other, f.add(wanted, each.index), 8), 8)
                result.write(f, number, each.index)

    def _wanted(self, f: Function, missing: Value | None) -> Index:
        """Emit the first wanted position."""
        if missing is None:
            return self.first
        numbers = f.sub(self.columns, missing)
        if self.middle == "all":
            return f.select(f.less(0, missing), as_value(numbers), as_value((self.columns - 1) // 2))
        return f.divmod(f.maximum(f.sub(numbers, 1), 0), 2)[0]

    def _pack(self, f: Function, line: Value, numbers: Value) -> Value | None:
        """Store every element above its index, padded with the largest number; return the number of NaN if needed."""
        element, size = TYPES[self.dtype]
        lanes, counts = self.lanes, self.middle != "none" and self.dtype == "float32"
        whole = self.columns // lanes * lanes
        missing: list[Value] = [constant(0, vector(lanes, "i64"))] if counts else []
        if whole:
            with f.loop(0, whole, lanes, carry=missing) as loop:
                x = f.load(vector(lanes, element), f.at(line, loop.index, size), size)
                f.store(self._number(f, x, loop.index), f.at(numbers, loop.index, 8), 8)
                if counts:
                    loop.carry([f.binary("add", loop.carried[0], _is_nan(f, x))])
            missing = loop.results
        total = [fold_lanes(f, missing[0], added)] if counts else []
        for column in range(whole, self.columns):
            x = f.load(element, f.at(line, column, size), size)
            f.store(self._number(f, x, column), f.at(numbers, column, 8), 8)
            if counts:
                total = [f.binary("add", total[0], _is_nan(f, x))]
        for column in range(self.columns, self.width):
            f.store(constant(2**63 - 1, "i64"), f.at(numbers, column, 8), 8)
        return total[0] if counts else constant(0, "i64") if self.middle != "none" else None

    def _number(self, f: Function, x: Value, column: Index) -> Value:
        lanes = lanes_of(x.type)
        narrow, wide = vector(lanes, "i32"), vector(lanes, "i64")
        if self.dtype == "float32":
            bits = f.convert("bitcast", f.fadd(x, constant(0.0, x.type)), narrow)
            below = f.binary("ashr", bits, constant(31, narrow))
            bits = f.binary("xor", bits, f.binary("and", below, constant(2**31 - 1, narrow)))
            bits = f.select(f.compare("uno", x, x), constant(2**31 - 1, narrow), bits)
        elif self.dtype == "int32":
            bits = x
        else:
            bits = f.convert("zext" if self.dtype in ("bool", "uint8") else "sext", x, narrow)
        bits = f.binary("xor", bits, constant(-1, narrow)) if self.is_descending else bits
        high = f.binary("shl", f.convert("sext", bits, wide), constant(32, wide))
        source_index = f.splat(as_value(column), lanes)
        if lanes > 1:
            steps = Value("<" + ", ".join(f"i64 {k}" for k in range(lanes)) + ">", wide)
            source_index = f.binary("add", source_index, steps)
        return f.binary("or", high, source_index)

    def _count(self, f: Function, numbers: Value, count: Index, wanted: Index, result: _Result) -> None:
        """Write every wanted element to its rank: the number of smaller elements."""
        lanes = self.lanes
        stop: Index = f.mul(f.divmod(f.add(count, lanes - 1), lanes)[0], lanes)
        with f.loop(0, count) as each:
            number = f.load("i64", f.at(numbers, each.index, 8), 8)
            wide = f.splat(number, lanes)
            with f.loop(0, stop, lanes, carry=[constant(0, wide.type)]) as other:
                is_before = f.compare("slt", f.load(wide.type, f.at(numbers, other.index, 8), 8), wide)
                other.carry([f.binary("add", other.carried[0], f.convert("zext", is_before, wide.type))])
            rank = f.sub(fold_lanes(f, other.results[0], added), wanted)
            is_wanted = f.compare("ult", as_value(rank), constant(self.count, "i64"))
            with f.when(is_wanted):
                result.write(f, number, rank)

    def _pick(self, f: Function, numbers: Value, result: _Result) -> None:
        """Write every wanted element: the least that exceeds the one before."""
        lanes = self.lanes
        last = f.splat(constant(2**63 - 1, "i64"), lanes)
        with f.loop(0, self.first + self.count, carry=[constant(-(2**63), "i64")]) as each:
            bound = f.splat(each.carried[0], lanes)
            with f.loop(0, self.width, lanes, carry=[last]) as other:
                number = f.load(last.type, f.at(numbers, other.index, 8), 8)
                left = f.select(f.compare("sge", number, bound), number, last)
                other.carry([_smaller(f, [left, other.carried[0]])])
            found = fold_lanes(f, other.results[0], _smaller)
            is_wanted = f.less(self.first - 1, each.index)
            with f.when(is_wanted):
                result.write(f, found, f.sub(each.index, self.first))
            each.carry([as_value(f.add(found, 1))])

    def _select(self, f: Function, numbers: Value, count: Index, bins: Value) -> Value:
        """Keep elements whose leading digit may be among the first ``count``; return how many are kept."""
        if not isinstance(count, Value) and count == self.columns:
            return as_value(self.columns)
        digit = _DIGITS[-1]
        clear(f, bins, _BINS)
        _tally(f, numbers, self.columns, digit, bins)
        nothing = constant(0, "i64")
        with f.loop(0, _BINS, carry=[nothing, nothing]) as each:
            total, last = each.carried
            size = f.convert("zext", f.load("i32", f.at(bins, each.index)), "i64")
            total = as_value(f.add(total, size))
            is_short = f.convert("zext", f.less(total, count), "i64")
            each.carry([total, as_value(f.add(last, is_short))])
        last = each.results[1]
        with f.loop(0, self.columns, carry=[nothing]) as each:
            number = f.load("i64", f.at(numbers, each.index, 8), 8)
            f.store(number, f.at(numbers, each.carried[0], 8), 8)
            is_kept = f.convert("zext", f.less(_digit(f, number, digit), f.add(last, 1)), "i64")
            each.carry([as_value(f.add(each.carried[0], is_kept))])
        kept = each.results[0]
        # Counting compares whole vectors: the padding must exceed all elements.
        with f.loop(kept, f.minimum(f.add(kept, self.lanes), self.width)) as each:
            f.store(constant(2**63 - 1, "i64"), f.at(numbers, each.index, 8), 8)
        return kept

    def _sort(self, f: Function, numbers: Value, other: Value, count: Value, bins: Value) -> None:
        """Sort by digits, least first, alternating between two buffers; the result is in ``other``."""
        for digit in _DIGITS:
            clear(f, bins, _BINS)
            _tally(f, numbers, count, digit, bins)
            with f.loop(0, _BINS, carry=[constant(0, "i32")]) as each:
                at = f.at(bins, each.index)
                size = f.load("i32", at)
                f.store(each.carried[0], at)
                each.carry([f.binary("add", each.carried[0], size)])
            with f.loop(0, count) as each:
                number = f.load("i64", f.at(numbers, each.index, 8), 8)
                at = f.at(bins, _digit(f, number, digit))
                position = f.load("i32", at)
                f.store(f.binary("add", position, constant(1, "i32")), at)
                f.store(number, f.at(other, f.convert("zext", position, "i64"), 8), 8)
            numbers, other = other, numbers


@dataclass(frozen=True, slots=True)
class _Result:
    """Addresses of a row and of its sorted elements."""

    line: Value
    indices: Value
    elements: Value
    size: int

    def write(self, f: Function, number: Value, index: Index) -> None:
        """Store the element a number stands for, and its index."""
        source_index = f.binary("and", number, constant(_INDEX_MASK, "i64"))
        f.store(source_index, f.at(self.indices, index, 8), 8)
        element = f.load(f"i{8 * self.size}", f.at(self.line, source_index, self.size), self.size)
        f.store(element, f.at(self.elements, index, self.size), self.size)


def added(f: Function, values: Sequence[Value]) -> Value:
    """Emit the sum of two integers; a reduction for ``fold_lanes``."""
    first, second = values
    return f.binary("add", first, second)


def _smaller(f: Function, values: Sequence[Value]) -> Value:
    first, second = values
    return f.select(f.compare("slt", first, second), first, second)


def _is_nan(f: Function, x: Value) -> Value:
    return f.convert("zext", f.compare("uno", x, x), vector(lanes_of(x.type), "i64"))


def _digit(f: Function, number: Value, digit: tuple[int, int]) -> Value:
    low, bits = digit
    if low + bits == 64:  # the sign is flipped so that negative numbers come first
        return as_value(f.add(f.binary("ashr", number, constant(low, "i64")), 1 << (bits - 1)))
    return f.binary("and", f.binary("lshr", number, constant(low, "i64")), constant((1 << bits) - 1, "i64"))


def clear(f: Function, bins: Value, count: int) -> None:
    """Zero a multiple of four counts."""
    with f.loop(0, count, 4) as each:
        f.store(constant(0, "<4 x i32>"), f.at(bins, each.index))


def _tally(f: Function, numbers: Value, count: Index, digit: tuple[int, int], bins: Value) -> None:
    with f.loop(0, count) as each:
        at = f.at(bins, _digit(f, f.load("i64", f.at(numbers, each.index, 8), 8), digit))
        f.store(f.binary("add", f.load("i32", at), constant(1, "i32")), at)
