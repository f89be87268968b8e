"""Batched matrix products of two factors that are computed at run time.

A register tile is rows by a panel of columns. The right factor of a chunk is packed into panels on the stack. With few
rows packing would not pay, and panels are read in place. Tiles that would cross the last row are shifted back.

Products of narrow numbers are those of words of them; see ``ARITHMETIC``. Bytes have zero points: the sum of
(a - x) * (b - y) is that of a * b, less y times the sum of a row and x times the sum of a column of b - y. Row sums are
made once for all panels, and column sums with the panel.

Arguments: left, right, target, operands of the epilogue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

from engine.compiler.codegen.host import Host
from engine.compiler.codegen.ir import Function, Index, Module, Sizes, Value, as_value, hint, is_dynamic, lanes_of
from engine.compiler.kernels.channels import Panel, cases, fitting_lanes, load_panel, panels_of, starts_of, width_of
from engine.compiler.kernels.convolution.conv_tile import EXPENSIVE
from engine.compiler.kernels.convolution.tiles import choose_tile
from engine.compiler.kernels.expr import cost
from engine.compiler.kernels.functions.arithmetic import integer
from engine.compiler.kernels.grid import Grid
from engine.compiler.kernels.kernel import Epilogue, Kernel, Strides, derived, start
from engine.compiler.kernels.numbers import FLOAT
from engine.compiler.kernels.products.arithmetic import ARITHMETIC, Words
from engine.compiler.kernels.products.byte_sums import column_sums, row_sum
from engine.compiler.kernels.products.matrix import Matrix
from engine.compiler.kernels.products.packing import Packing
from engine.compiler.kernels.products.tile import Tile
from engine.compiler.kernels.target import Target
from engine.ir.dims import is_symbolic

# Share of the L2 cache for rows of the left factor, which are read again for every panel.
LEFT_SHARE = 3 / 16
# Most bytes of a packed panel, which is on the stack.
PANEL_BYTES = 512 * 1024
# Most rows of a chunk whose sums are kept.
MOST_SUMS = 8192


@dataclass(frozen=True, kw_only=True)
class Product(Kernel):
    """Batched product of static geometry.

    Args:
        stack: two batch dimensions: (n, h).
        rows, columns, terms: of a result, and products summed for an element.
        left, right: strides of the factors (rows, terms) and (terms, columns), two of them batch strides.
        target: strides of elements (n, h, row, column), 1 along columns.
        tile_rows, vectors: rows of a tile, and vectors of a panel.
        panel: every panel, for a symbolic number of columns; the last is shifted back to end with the last column.
        words: a row of ``ARITHMETIC``; bytes of the left factor are unsigned, and the epilogue gets sums as words.
        dtype: of the right factor, which words hold.
        zeros: zero points of the factors, if these are bytes.
    """

    kind = "product"
    stack: tuple[int, int]
    rows: int
    columns: int
    terms: int
    left: Matrix
    right: Matrix
    target: Strides
    epilogue: Epilogue = field(default_factory=Epilogue)
    tile_rows: int
    vectors: int
    panel: Panel = ()
    words: Words = "float"
    dtype: str = FLOAT
    zeros: tuple[int, int] = (0, 0)

    @property
    def flops(self) -> int:
        return 2 * self.stack[0] * self.stack[1] * self.rows * self.columns * self.terms

    def dynamic(self, sizes: Sizes) -> Self:
        symbolic = [name for name in ("columns", "terms") if is_symbolic(getattr(self, name))]
        dynamic = self.with_dynamic(sizes, "stack", "rows", *symbolic, "left", "right", "target", "epilogue")
        grid = self.grid
        counts = [tuple(map(sizes.dynamic_count, each)) for each in (grid.sizes, grid.block)]
        return derived(dynamic, grid=Grid((counts[0][0], counts[0][1]), (counts[1][0], counts[1][1])))

    @cached_property
    def panels(self) -> tuple[Panel, ...]:
        """Return the vectors of every panel."""
        return (self.panel,) if self.panel else panels_of(self.columns, self.host.lanes, self.vectors)

    @property
    def panel_count(self) -> int:
        """Return the number of panels."""
        return -(-self.columns // width_of(self.panel)) if self.panel else len(self.panels)

    @property
    def tiles(self) -> int:
        """Return the number of tiles."""
        return -(-self.rows // self.tile_rows)

    @property
    def is_packed(self) -> bool:
        """Return whether panels are packed: words, for many rows, and where columns are not contiguous."""
        if self.words != "float":
            return True
        if not is_row_major(self.right, self.columns):
            return True
        if is_symbolic(self.terms) or is_dynamic(self.terms):
            return False  # the size of a panel is not known
        return self.tiles > 1 and self.host.element_bytes * self.terms * width_of(self.panels[0]) <= PANEL_BYTES

    @cached_property
    def grid(self) -> Grid:
        """Return the grid of tiles by panels of all products, cut into chunks."""
        panels = self.stack[0] * self.stack[1] * self.panel_count
        tile_bytes = 4 * self.tile_rows * self.terms
        tiles = max(1, min(hint(self.tiles), int(LEFT_SHARE * self.host.memory.second_bytes) // hint(tile_bytes)))
        tiles = tiles if not self.row_zero else min(tiles, MOST_SUMS // self.tile_rows)
        work = hint(self.flops) / hint(self.tiles * panels)
        grid = Grid((self.tiles, panels), (tiles, panels)).evened()
        return grid.cut(self.host.wanted_chunks, work, self.host.chunk_flops)

    @property
    def min_sizes(self) -> Sequence[tuple[int, int]]:
        rows = (self.rows, self.tile_rows)
        return (rows, (self.columns, width_of(self.panel))) if self.panel else (rows,)

    @property
    def chunks(self) -> int:
        return self.grid.chunks

    @property
    def row_zero(self) -> int:
        """Return the factor of row sums: the right zero point, less 128 for unsigned bytes, which are packed signed."""
        return self.zeros[1] - 128 * (self.dtype == "uint8")

    @property
    def size(self) -> int | None:
        """Return the bytes of a number of the left factor; None for the kernel's float."""
        return None if self.words == "float" else ARITHMETIC[self.words].image.itemsize

    @property
    def first_floats(self) -> int:
        """Return the floats before the words of a packed panel: the initial sums of its columns."""
        return width_of(self.panels[0]) if self.words == "int8" else 0

    def emit(self, module: Module) -> None:
        functions = {each: self._emit_tile(module, each) for each in dict.fromkeys(self.panels)}
        f, (left, right, *addresses), chunk = start(module, self, 3 + len(self.epilogue.operands))
        packed = f.reserve(self.first_floats + self._packing(self.panels[0]).panel_floats) if self.is_packed else right
        sums = f.reserve(self.tile_rows * min(self.grid.block[0], MOST_SUMS)) if self.row_zero else None
        target = Target.of(f, self.epilogue, self.target, addresses)
        tiles, panels = self.grid.ranges(f, chunk)
        width = sum(real for _, real in self.panels[0])
        with f.loop(*panels) as each:
            number, panel = f.divmod(each.index, self.panel_count)
            n, h = f.divmod(number, self.stack[1])
            column = f.mul(panel, width)
            column = f.minimum(column, self.columns - width) if self.panel else column
            size = self._packing(self.panels[0]).size
            source = f.at(self.right.at(f, right, [n, h], size), f.mul(column, self.right.column), size)
            if self.is_packed:
                self._pack(f, panel, source, packed)
            begin = self.left.at(f, left, [n, h], self.size)
            if sums is not None:
                is_first = f.compare("eq", as_value(each.index), as_value(panels[0]))
                with f.when(f.binary("or", is_first, f.compare("eq", as_value(panel), as_value(0)))):
                    self._sum_rows(f, begin, tiles, sums)
            with f.loop(*tiles) as tile:
                row = self._first_row(f, tile.index)
                own = [] if sums is None else [f.at(sums, f.sub(row, self._first_row(f, tiles[0])))]
                addresses = target.at(n, h, row, column).addresses
                at = f.at(begin, f.mul(row, self.left.row), self.size)
                arguments = [at, packed if self.is_packed else source, *own, *addresses]
                for part in cases(f, panel, self.panels):
                    f.call(functions[part], arguments)
        f.finish()

    def _first_row(self, f: Function, tile: Index) -> Index:
        """Emit the first row of a tile; the last tile is shifted back to end with the last row."""
        return f.minimum(f.mul(tile, self.tile_rows), self.rows - self.tile_rows) if self.tiles > 1 else 0

    def _packing(self, panel: Panel) -> Packing:
        return Packing(
            source=self.right, rows=self.terms, panels=(panel,), host=self.host, words=self.words, dtype=self.dtype
        )

    def _pack(self, f: Function, panel: Index, source: Value, packed: Value) -> None:
        for part in cases(f, panel, self.panels):
            packing, first = self._packing(part), f.at(packed, self.first_floats)
            packing.emit(f, source, first, sum(real for _, real in part))
            if self.words == "int8":
                column_sums(f, self.host, part, (first, packed), packing.words_of_column, self._begun)

    def _begun(self, f: Function, sums: Value) -> Value:
        """Emit the initial sums of columns: what the left zero point adds."""
        (zero, _), shift = self.zeros, self.terms * self.zeros[0] * self.row_zero
        return integer(f, "add", integer(f, "mul", sums, -zero), shift)

    def _sum_rows(self, f: Function, begin: Value, tiles: tuple[Index, Index], sums: Value) -> None:
        """Emit the sums of the rows of some tiles, times what the right zero point makes of them."""
        first = self._first_row(f, tiles[0])
        with f.loop(first, f.add(self._first_row(f, f.sub(tiles[1], 1)), self.tile_rows)) as row:
            total = row_sum(f, self.host, f.at(begin, f.mul(row.index, self.left.row), 1), self.terms)
            f.store(integer(f, "mul", total, -self.row_zero), f.at(sums, f.sub(row.index, first)))

    def _emit_tile(self, module: Module, panel: Panel) -> str:
        """Emit the micro-kernel of a tile and a panel."""
        name = f"{self.name}_{'_'.join(str(real) for _, real in panel)}"
        own = [("ptr", "sums")] if self.row_zero else []
        f = module.inner(name, [("ptr", "left"), ("ptr", "right"), *own, *self.epilogue.parameters])
        left, right, *addresses = f.parameters
        added = addresses.pop(0) if own else None
        target = Target.of(f, self.epilogue, self.target, addresses)
        is_expensive = cost(self.epilogue.tree) >= EXPENSIVE and self.tile_rows > 1
        sums = f.reserve(self.tile_rows * width_of(panel)) if is_expensive else None
        tile = Tile(
            rows=self.tile_rows,
            panel=panel,
            row=self.left.row,
            term=self.left.column,
            line=None if self.is_packed else self.right.row,
            host=self.host,
            words=self.words,
        )
        words, rest = divmod(self.terms, tile.arithmetic.numbers)
        first = self._first_sums(f, tile, right, added)
        packed = f.at(right, self.first_floats)
        totals = tile.multiply(f, left, packed, words, first)
        if not is_dynamic(rest) and not is_symbolic(rest) and rest:
            totals = tile.multiply_rest(f, left, packed, words, rest, totals)
        lines = tile.lines([tile.arithmetic.ended(f, each) for each in totals])
        if sums is None:
            for row, line in enumerate(lines):
                target.at(w=row).store_panel(line, panel)
        else:
            for row, line in enumerate(lines):
                for value, first_lane in zip(line, starts_of(panel), strict=True):
                    f.store(value, f.at(sums, row * width_of(panel) + first_lane))
            with f.loop(0, self.tile_rows) as each:
                values = load_panel(f, f.at(sums, f.mul(each.index, width_of(panel))), panel, is_padded=True)
                target.at(w=each.index).store_panel(values, panel)
        f.finish()
        return name

    def _first_sums(self, f: Function, tile: Tile, right: Value, added: Value | None) -> list[Value]:
        """Emit the initial sums: zeros, or those of the columns of bytes plus those of the rows."""
        if self.words != "int8":
            return tile.zeros()
        columns = [tile.arithmetic.begun(f, each) for each in load_panel(f, right, tile.panel, is_padded=True)]
        if added is None:
            return columns * self.tile_rows
        rows = [f.load("i32", f.at(added, row)) for row in range(self.tile_rows)]
        return [f.binary("add", each, f.splat(row, lanes_of(each.type))) for row in rows for each in columns]


def symbolic_panel(host: Host, columns: int, vectors: int) -> Panel:
    """Return the panel for a symbolic number of columns: whole vectors that fit the hint; empty if it is static."""
    if not is_symbolic(columns):
        return ()
    lanes = fitting_lanes(columns, host.lanes)
    lanes = lanes if lanes <= hint(columns) else lanes // 2
    return ((lanes, lanes),) * min(vectors, hint(columns) // lanes)


def is_row_major(matrix: Matrix, columns: int) -> bool:
    """Return whether columns are contiguous."""
    return matrix.column == 1 or columns == 1


def is_supported_layout(host: Host, sizes: tuple[int, ...], strides: tuple[int, ...], vectors: int) -> bool:
    """Return whether a right factor with these (terms, columns) and strides can be read or packed in place."""
    (terms, columns), (row, column) = sizes, strides
    if column == 1 or columns == 1:
        return True
    if is_symbolic(terms):
        return False
    return (row == 1 or terms == 1) and host.element_bytes * terms * vectors * host.lanes <= PANEL_BYTES


def choose_product_tile(host: Host, rows: int, columns: int, terms: int, words: Words = "float") -> tuple[int, int]:
    """Return the rows of a tile and the vectors of a panel."""
    arithmetic = ARITHMETIC[words]
    tile = choose_tile(arithmetic.tiling_host(host), 1, rows, columns, -(-terms // arithmetic.numbers))
    return tile.columns, tile.vectors
