"""Inner functions of attention: scores with a panel of keys, softmax weights, weights times a panel of values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.compiler.codegen.ir import Function, Index, Module, Value, vector
from engine.compiler.kernels.attention.rows import RowCode
from engine.compiler.kernels.channels import Panel, load_panel, load_stored, starts_of, vectors_of
from engine.compiler.kernels.folding import fold_lanes, total
from engine.compiler.kernels.functions import half
from engine.compiler.kernels.products.arithmetic import ARITHMETIC, Words
from engine.compiler.kernels.products.matrix import Matrix
from engine.compiler.kernels.products.tile import Tile


@dataclass(frozen=True, slots=True, kw_only=True)
class TileFunctions:
    """Inner functions of a kernel, emitted on first use; a call has all registers to itself.

    Args:
        name: of the kernel.
        width: columns of query and key.
        query, target: their strides.
        rows: generator of the softmax; it also determines the layout of scores.
        sum_width: floats from row to row of the sums over several blocks.
        key_line: floats from column to column of the keys; None where they are packed.
        value_line: elements from value to value; None where they are packed.
        dtype: of keys and values that are not packed.
    """

    module: Module
    name: str
    width: int
    query: Matrix
    target: Matrix
    rows: RowCode
    sum_width: int
    key_line: int | None
    value_line: int | None
    dtype: str

    @property
    def words(self) -> Words:
        """Return the words of all factors."""
        return self.rows.words

    @property
    def query_pitch(self) -> int:
        """Return the numbers from row to row of rounded queries."""
        return -(-self.width // self.rows.lanes) * self.rows.lanes

    def rounded(self) -> str:
        """Return the name of (queries, target): a tile's queries as bfloat16."""
        name = f"{self.name}_rounded"
        if name not in self.module.functions:
            f = self.module.inner(name, [("ptr", "queries"), ("ptr", "target")])
            queries, target = f.parameters
            for row in range(self.rows.rows):
                for first in range(0, self.width, lanes := self.rows.lanes):
                    at = f.at(queries, row * self.query.row + first * self.query.column)
                    value = f.load_lanes(vector(lanes), at, min(lanes, self.width - first), self.query.column)
                    self.rows.store_rounded(f, value, f.at(target, row * self.query_pitch + first, 2))
            f.finish()
        return name

    def scores(self, panel: Panel) -> str:
        """Return the name of (queries, keys, scores): products of a tile with a panel."""
        name = f"{self.name}_scores_{_named(panel)}"
        if name not in self.module.functions:
            f = self.module.inner(name, [("ptr", "queries"), ("ptr", "keys"), ("ptr", "scores")])
            queries, keys, scores = f.parameters
            steps = (self.query.row, self.query.column) if self.words == "float" else (self.query_pitch, 1)
            tile = Tile(self.rows.rows, panel, *steps, self.rows.host, self.key_line, self.words)
            totals = tile.multiply(f, queries, keys, -(-self.width // tile.arithmetic.numbers), tile.zeros())
            for row, line in enumerate(tile.lines(totals)):
                for value, first in zip(line, starts_of(panel), strict=True):
                    f.store(value, f.at(scores, row * self.rows.pitch + first))
            f.finish()
        return name

    def dots(self, key_row: int) -> str:
        """Return the name of (queries, keys, scores, count): products of a tile with some keys in rows."""
        name = f"{self.name}_dots"
        if name not in self.module.functions:
            f = self.module.inner(name, [("ptr", "queries"), ("ptr", "keys"), ("ptr", "scores"), ("i64", "count")])
            queries, keys, scores, count = f.parameters
            panel = tuple(vectors_of(self.width, self.rows.lanes))
            lines = [load_panel(f, f.at(queries, row * self.query.row), panel) for row in range(self.rows.rows)]
            with f.loop(0, count) as each:
                at = f.at(keys, f.mul(each.index, key_row), half.SIZES.get(self.dtype))
                key = load_stored(f, at, panel, self.dtype, self.rows.host)
                for row, line in enumerate(lines):
                    f.store(_dot(f, line, key), f.at(scores, f.add(each.index, row * self.rows.pitch)))
            f.finish()
        return name

    def weights(self, keys: Index) -> str:
        """Return the name of the softmax function for a constant or a dynamic number of keys; see ``RowCode``."""
        name = f"{self.name}_weights_{_count(keys)}"
        if name not in self.module.functions:
            f = self.module.inner(name, self.rows.parameters)
            self.rows.emit(f, keys if isinstance(keys, int) else f.parameters[-2])
        return name

    def values(self, panel: Panel, keys: Index) -> str:
        """Return the name of (weights, values, states, target or sums, keys): weighted sums of a panel of values."""
        name = f"{self.name}_values_{_named(panel)}_{_count(keys)}"
        if name not in self.module.functions:
            parameters = [("ptr", "weights"), ("ptr", "values"), ("ptr", "states"), ("ptr", "target"), ("i64", "keys")]
            f = self.module.inner(name, parameters)
            weights, values, states, target, count = f.parameters
            numbers = ARITHMETIC[self.words].numbers
            row = numbers * self.rows.pitch
            tile = Tile(self.rows.rows, panel, row, 1, self.rows.host, self.value_line, self.words, self.dtype)
            first = self._sums(f, panel, states, target) if self.rows.has_blocks else tile.zeros()
            terms, _ = f.divmod(f.add(keys if isinstance(keys, int) else count, numbers - 1), numbers)
            totals = tile.multiply(f, weights, values, terms, first)
            for row, line in enumerate(tile.lines(totals)):
                self._keep(f, panel, row, line, (states, target))
            f.finish()
        return name

    def store(self, f: Function, panel: Panel, values: Sequence[Value], factor: Value, target: Value) -> None:
        """Store a row of the result, each vector times a factor."""
        column = 0
        for value, (lanes, real) in zip(values, panel, strict=True):
            at = f.at(target, column * self.target.column)
            f.store_lanes(f.fmul(value, f.splat(factor, lanes)), at, real, self.target.column)
            column += real

    def _sums(self, f: Function, panel: Panel, states: Value, sums: Value) -> list[Value]:
        """Load the sums of earlier blocks, rescaled."""
        result = []
        for row in range(self.rows.rows):
            factor = self.rows.factor_at(f, states, row)
            line = load_panel(f, f.at(sums, row * self.sum_width), panel, is_padded=True)
            result += [f.fmul(each, f.splat(factor, lanes)) for each, (lanes, _) in zip(line, panel, strict=True)]
        return result

    def _keep(self, f: Function, panel: Panel, row: int, line: Sequence[Value], addresses: tuple[Value, Value]) -> None:
        states, target = addresses
        if self.rows.has_blocks:
            for value, first in zip(line, starts_of(panel), strict=True):
                f.store(value, f.at(target, row * self.sum_width + first))
        else:
            self.store(f, panel, line, self.rows.factor_at(f, states, row), f.at(target, row * self.target.row))


def _dot(f: Function, line: Sequence[Value], key: Sequence[Value]) -> Value:
    """Emit the sum of the products of two lines, each in vectors."""
    sums: dict[str, Value] = {}
    for a, b in zip(line, key, strict=True):
        sums[a.type] = f.fma(a, b, sums[a.type]) if a.type in sums else f.fmul(a, b)
    return total(f, [fold_lanes(f, each, total) for each in sums.values()])


def _named(panel: Panel) -> str:
    return "_".join(str(real) for _, real in panel)


def _count(keys: Index) -> str:
    return str(keys) if isinstance(keys, int) else "some"
