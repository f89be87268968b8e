"""Batched matrix products of two factors that are computed at run time.

A register tile is rows by a panel of columns. The right factor of a chunk is packed into panels on the stack. With few
rows packing would not pay, and panels are read in place. Tiles that would cross the last row are shifted back.

Arguments: left, right, target, operands of the epilogue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

from engine.compiler.codegen.host import Host
from engine.compiler.codegen.ir import Function, Index, Module, Sizes, Value, hint, is_dynamic
from engine.compiler.kernels.channels import Panel, cases, fitting_lanes, load_panel, panels_of, starts_of, width_of
from engine.compiler.kernels.convolution.conv_tile import EXPENSIVE
from engine.compiler.kernels.convolution.tiles import choose_tile
from engine.compiler.kernels.expr import cost
from engine.compiler.kernels.grid import Grid
from engine.compiler.kernels.kernel import Epilogue, Kernel, Strides, derived, start
from engine.compiler.kernels.products.matrix import Matrix
from engine.compiler.kernels.products.packing import Packing
from engine.compiler.kernels.products.tile import Tile
from engine.compiler.kernels.target import Target
from engine.ir.dims import is_symbolic

# Share of the L2 cache for rows of the left factor, which are read again for every panel.
LEFT_SHARE = 3 / 16
# Most bytes of a packed panel, which is on the stack.
PANEL_BYTES = 512 * 1024


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
        """Return whether panels are packed: for many rows, and where columns are not contiguous."""
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

    def emit(self, module: Module) -> None:
        functions = {each: self._emit_tile(module, each) for each in dict.fromkeys(self.panels)}
        f, (left, right, *addresses), chunk = start(module, self, 3 + len(self.epilogue.operands))
        packed = f.reserve(self.terms * width_of(self.panels[0])) if self.is_packed else right
        target = Target.of(f, self.epilogue, self.target, addresses)
        tiles, panels = self.grid.ranges(f, chunk)
        width = sum(real for _, real in self.panels[0])
        with f.loop(*panels) as each:
            number, panel = f.divmod(each.index, self.panel_count)
            n, h = f.divmod(number, self.stack[1])
            column = f.mul(panel, width)
            column = f.minimum(column, self.columns - width) if self.panel else column
            source = f.at(self.right.at(f, right, [n, h]), f.mul(column, self.right.column))
            if self.is_packed:
                self._pack(f, panel, source, packed)
            begin = self.left.at(f, left, [n, h])
            with f.loop(*tiles) as tile:
                row = self._first_row(f, tile.index)
                addresses = target.at(n, h, row, column).addresses
                arguments = [f.at(begin, f.mul(row, self.left.row)), packed if self.is_packed else source, *addresses]
                for part in cases(f, panel, self.panels):
                    f.call(functions[part], arguments)
        f.finish()

    def _first_row(self, f: Function, tile: Index) -> Index:
        """Emit the first row of a tile; the last tile is shifted back to end with the last row."""
        return f.minimum(f.mul(tile, self.tile_rows), self.rows - self.tile_rows) if self.tiles > 1 else 0

    def _pack(self, f: Function, panel: Index, source: Value, packed: Value) -> None:
        for part in cases(f, panel, self.panels):
            columns = sum(real for _, real in part)
            Packing(source=self.right, rows=self.terms, panels=(part,)).emit(f, source, packed, columns)

    def _emit_tile(self, module: Module, panel: Panel) -> str:
        """Emit the micro-kernel of a tile and a panel."""
        name = f"{self.name}_{'_'.join(str(real) for _, real in panel)}"
        f = module.inner(name, [("ptr", "left"), ("ptr", "right"), *self.epilogue.parameters])
        left, right, *addresses = f.parameters
        target = Target.of(f, self.epilogue, self.target, addresses)
        is_expensive = cost(self.epilogue.tree) >= EXPENSIVE and self.tile_rows > 1
        sums = f.reserve(self.tile_rows * width_of(panel)) if is_expensive else None
        tile = Tile(
            rows=self.tile_rows,
            panel=panel,
            row=self.left.row,
            term=self.left.column,
            line=None if self.is_packed else self.right.row,
            memory=self.host.memory,
        )
        lines = tile.lines(tile.multiply(f, left, right, self.terms, tile.zeros()))
        if sums is None:
            for row, line in enumerate(lines):
                target.at(w=row).store_panel(line, panel)
        else:
            for row, line in enumerate(lines):
                for value, first in zip(line, starts_of(panel), strict=True):
                    f.store(value, f.at(sums, row * width_of(panel) + first))
            with f.loop(0, self.tile_rows) as each:
                values = load_panel(f, f.at(sums, f.mul(each.index, width_of(panel))), panel, is_padded=True)
                target.at(w=each.index).store_panel(values, panel)
        f.finish()
        return name


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


def choose_product_tile(host: Host, rows: int, columns: int, terms: int) -> tuple[int, int]:
    """Return the rows of a tile and the vectors of a panel."""
    tile = choose_tile(host, 1, rows, columns, terms)
    return tile.columns, tile.vectors
