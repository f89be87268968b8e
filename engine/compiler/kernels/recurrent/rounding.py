"""Rounding of rows of floats to the narrow factors of products: bfloat16, or integers over the range of the rows.

Integers are the codes of unsigned bytes (``int8``), or their distances from the zero point (``int16``). The scale of a
row, and what is the zero point of its integers, lie in front of its words, as two floats.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.compiler.codegen.host import Host
from engine.compiler.codegen.ir import Function, Index, Module, Value, constant, lanes_of, vector
from engine.compiler.kernels.expr import Operand, apply, emit
from engine.compiler.kernels.folding import SIDE_BY_SIDE, fold_lanes, walk_row
from engine.compiler.kernels.functions import half
from engine.compiler.kernels.functions.arithmetic import maximum, minimum
from engine.compiler.kernels.functions.math import FUNCTIONS
from engine.compiler.kernels.kernel import Lines, block_of, start
from engine.compiler.kernels.numbers import store_numbers
from engine.compiler.kernels.products.arithmetic import ARITHMETIC, Arithmetic, Words
from engine.compiler.kernels.quantising import code_of, scale_of, zero_of

# Floats of a cache line: rows are whole lines, and a line holds the scale and the zero point.
_LINE = 16


@dataclass(frozen=True, slots=True)
class Rounding:
    """Rounding of rows.

    Args:
        words: what a word holds.
        terms: numbers of a row.
        of_all: whether all rows have one range; otherwise each has its own.
    """

    words: Words
    terms: int
    of_all: bool = False

    @property
    def arithmetic(self) -> Arithmetic:
        """Return the arithmetic of the words."""
        return ARITHMETIC[self.words]

    @property
    def is_integer(self) -> bool:
        """Return whether sums are integers, which are multiplied by scales."""
        return bool(self.arithmetic.sums)

    @property
    def head(self) -> int:
        """Return the floats in front of the words of a row."""
        return _LINE if self.is_integer else 0

    @property
    def count(self) -> int:
        """Return the words of a row."""
        return -(-self.terms // self.arithmetic.numbers)

    @property
    def pitch(self) -> int:
        """Return the floats from one row to the next."""
        return self.head + -(-self.count // _LINE) * _LINE

    def emit(
        self, f: Function, host: Host, source: Callable[[Index], Value], target: Value, rows: tuple[Index, Index]
    ) -> None:
        """Emit the rounding of a range of rows; the numbers behind a row's last stand for 0.

        Args:
            source: returns the address of a row.
            target: address of row 0.
        """
        lanes = host.lanes
        if self.of_all:
            nothing = constant(0.0, vector(lanes))
            with f.loop(*rows, carry=[nothing, nothing]) as row:
                row.carry(self._range(f, source(row.index), row.carried))
            step = self._step(f, row.results)
        with f.loop(*rows) as row:
            line = source(row.index)
            if self.is_integer and not self.of_all:
                nothing = constant(0.0, vector(lanes))
                step = self._step(f, self._range(f, line, [nothing, nothing]))
            self._store(f, host, line, f.at(target, f.mul(row.index, self.pitch)), step if self.is_integer else [])

    def _range(self, f: Function, line: Value, before: list[Value]) -> list[Value]:
        """Return the least and the largest numbers, lane by lane."""
        lanes = lanes_of(before[0].type)
        found = []
        for fold, begin in zip((minimum, maximum), before, strict=True):

            def step(column: Index, count: int, carried: Value, fold: Callable[..., Value] = fold) -> Value:
                return fold(f, carried, f.load_lanes(vector(lanes), f.at(line, column), count))

            first, *others = walk_row(f, self.terms, lanes, [begin] * SIDE_BY_SIDE, step)
            for each in others:
                first = fold(f, first, each)
            found.append(first)
        return found

    def _step(self, f: Function, ends: list[Value]) -> list[Value]:
        """Return the scale and the zero point, in all lanes."""
        type_, lanes = ends[0].type, lanes_of(ends[0].type)
        folds = (lambda f, pair: minimum(f, *pair), lambda f, pair: maximum(f, *pair))
        wide = [f.splat(fold_lanes(f, end, fold), lanes) for end, fold in zip(ends, folds, strict=True)]
        scale = emit(f, scale_of(Operand(0), Operand(1)), wide, type_, FUNCTIONS)
        return [scale, emit(f, zero_of(Operand(0), Operand(1)), [wide[0], scale], type_, FUNCTIONS)]

    def _store(self, f: Function, host: Host, line: Value, target: Value, step: list[Value]) -> None:
        """Store the words of a row, and its scale and zero point in front of them."""
        lanes, type_, words = host.lanes, vector(host.lanes), f.at(target, self.head)
        for k, value in enumerate(step):
            # Distances from the zero point have none left.
            f.store_lanes(value if k == 0 or self.words == "int8" else constant(0.0, type_), f.at(target, k), 1)
        tree = code_of(apply("div", Operand(0), Operand(1)), Operand(2))
        size = self.arithmetic.image.itemsize

        def store(column: Index, count: int, carried: Value) -> Value:
            value, place = f.load_lanes(type_, f.at(line, column), count), f.at(words, column, size)
            if not self.is_integer:
                f.store_bytes(half.to_half(f, value, half.FACTOR, host), place, lanes)
                return carried
            code = emit(f, tree, [value, *step], type_, FUNCTIONS)
            if self.words == "int8":
                store_numbers(f, code, place, lanes, "uint8")
            else:
                f.store_bytes(f.convert("fptosi", f.fsub(code, step[1]), vector(lanes, "i16")), place, lanes)
            return carried

        walk_row(f, self.terms, lanes, [constant(0.0, type_)] * SIDE_BY_SIDE, store)


@dataclass(frozen=True, kw_only=True)
class RoundedRows(Lines):
    """Kernel that rounds all rows.

    Arguments: source, target.

    Args:
        source: distance of rows, in floats.
    """

    kind = "round_rows"
    dynamic_fields = ("rows", "source")
    rows: int
    source: int
    rounding: Rounding

    @property
    def lines(self) -> int:
        return self.rows

    @property
    def line_bytes(self) -> int:
        return 4 * (self.rounding.terms + self.rounding.pitch)

    @property
    def chunks(self) -> int:
        return 1 if self.rounding.of_all else super().chunks

    def emit(self, module: Module) -> None:
        f, (source, target), chunk = start(module, self, 2)
        rows = (0, self.rows) if self.rounding.of_all else block_of(f, chunk, self.block, self.rows)
        self.rounding.emit(f, self.host, lambda row: f.at(source, f.mul(row, self.source)), target, rows)
        f.finish()
