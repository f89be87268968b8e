"""Grouped matrix product (mixture of experts): rows in groups, each with its own matrix; group ends are dynamic.

Matrices are packed ahead of time into panels of columns. A chunk is a panel of one group: its rows, tile by tile, the
last tile shifted back to end with the group; groups with fewer rows than a tile use smaller tiles. Rows behind the last
group are zero. Ends that decrease or exceed the rows raise the fault flag: the result is invalid and the reference
layer reports the error.

Arguments: left, packed matrices, ends, target, fault flag (an int).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from engine.compiler.codegen.ir import Function, Index, Module, Sizes, Value, as_value, constant, vector
from engine.compiler.kernels.channels import Panel, candidate_sizes, cases, panels_of, width_of
from engine.compiler.kernels.indexing.gather import OUTSIDE, load_index
from engine.compiler.kernels.kernel import Epilogue, Kernel, Strides, start
from engine.compiler.kernels.products.tile import Tile
from engine.compiler.kernels.target import Target
from engine.tensor import Array


@dataclass(frozen=True, kw_only=True)
class GroupedProduct(Kernel):
    """Grouped product of static geometry except for the group ends.

    Args:
        groups: number of groups.
        rows, columns, terms: of the result, and products summed for an element.
        source, target: row strides in the left factor and in the result; columns are contiguous.
        bits: of an end.
        tile_rows, vectors: rows of a tile, and vectors of a panel.
    """

    kind = "grouped_product"
    sets_fault_flag = True
    groups: int
    rows: int
    columns: int
    terms: int
    source: int
    target: int
    bits: int
    tile_rows: int
    vectors: int

    @property
    def flops(self) -> int:
        return 2 * self.rows * self.columns * self.terms

    def dynamic(self, sizes: Sizes) -> Self:
        return self.with_dynamic(sizes, "rows")

    @cached_property
    def panels(self) -> tuple[Panel, ...]:
        """Return the vectors of every panel."""
        return panels_of(self.columns, self.host.lanes, self.vectors)

    @property
    def packing(self) -> tuple[object, ...]:
        """Return everything the packed matrices depend on besides their values."""
        return self.kind, self.panels

    @property
    def group_floats(self) -> int:
        """Return the floats of a packed matrix."""
        return self.terms * sum(map(width_of, self.panels))

    @property
    def chunks(self) -> int:
        return self.groups * len(self.panels)

    @cached_property
    def heights(self) -> list[int]:
        """Return the tile heights, highest first: a group uses the highest that fits."""
        return list(dict.fromkeys([*candidate_sizes(self.tile_rows)[::-2][:3], 1]))

    def pack(self, matrices: Array) -> Array:
        """Return matrices (groups, terms, columns) packed panel by panel, padded with zero columns."""
        blocks, column = [], 0
        for panel in self.panels:
            count = sum(real for _, real in panel)
            block = np.zeros((self.groups, self.terms, width_of(panel)), matrices.dtype)
            block[:, :, :count] = matrices[:, :, column : column + count]
            blocks.append(block.reshape(self.groups, -1))
            column += count
        return np.concatenate(blocks, axis=1)

    def emit(self, module: Module) -> None:
        shapes = [(height, panel) for panel in dict.fromkeys(self.panels) for height in self.heights]
        functions = {shape: self._emit_tile(module, *shape) for shape in shapes}
        f, (left, right, ends, target, fault_flag), chunk = start(module, self, 5)
        group, panel = f.divmod(chunk, len(self.panels))
        first, last = self._bounds(f, ends, group)
        is_fine = f.binary("and", f.compare("sle", constant(0, "i64"), first), f.compare("sle", first, last))
        is_fine = f.binary("and", is_fine, f.compare("sle", last, as_value(self.rows)))
        with f.unless(is_fine):
            f.store(constant(OUTSIDE, "i32"), fault_flag)
        width = self.terms * width_of(self.panels[0])
        packed = f.at(right, f.add(f.mul(group, self.group_floats), f.mul(panel, width)))
        out = f.at(target, f.mul(panel, sum(real for _, real in self.panels[0])))
        with f.when(is_fine):
            for part in cases(f, panel, self.panels):
                names = {height: functions[height, part] for height in self.heights}
                self._multiply(f, names, (left, packed, out), (first, last))
                with f.when(f.compare("eq", as_value(group), as_value(self.groups - 1))):
                    self._clear(f, part, out, last)
        f.finish()

    def _bounds(self, f: Function, ends: Value, group: Index) -> tuple[Value, Value]:
        """Emit the range of rows of a group."""
        last = _end(f, ends, group, self.bits)
        before = _end(f, ends, f.maximum(f.add(group, -1), 0), self.bits)
        return f.select(f.less(0, group), before, constant(0, "i64")), last

    def _multiply(
        self, f: Function, names: dict[int, str], addresses: tuple[Value, Value, Value], bounds: tuple[Value, Value]
    ) -> None:
        """Emit all rows of a group, in the highest tiles that fit."""
        (left, packed, out), (first, last) = addresses, bounds
        count = f.sub(last, first)
        above: int | None = None
        for height in self.heights:
            # Whole tiles and one that is shifted back; none where a higher tile fits.
            tiles, _ = f.divmod(f.add(count, height - 1), height)
            is_due = f.less(height - 1, count)
            if above is not None:
                is_due = f.binary("and", is_due, f.less(count, above))
            with f.when(is_due), f.loop(0, tiles) as tile:
                row = f.minimum(f.add(first, f.mul(tile.index, height)), f.sub(last, height))
                f.call(names[height], [f.at(left, f.mul(row, self.source)), packed, f.at(out, f.mul(row, self.target))])
            above = height

    def _clear(self, f: Function, panel: Panel, out: Value, last: Value) -> None:
        """Zero the rows behind the last group."""
        target, nothing = self._target(f, out), [constant(0.0, vector(lanes)) for lanes, _ in panel]
        with f.loop(last, self.rows) as row:
            target.at(w=row.index).store_panel(nothing, panel)

    def _target(self, f: Function, address: Value) -> Target:
        return Target.of(f, Epilogue(), Strides(0, 0, self.target), [address])

    def _emit_tile(self, module: Module, height: int, panel: Panel) -> str:
        """Emit the micro-kernel of a tile and a panel."""
        name = f"{self.name}_{height}_{'_'.join(str(real) for _, real in panel)}"
        f = module.inner(name, [("ptr", "left"), ("ptr", "right"), ("ptr", "target")])
        left, right, address = f.parameters
        target = self._target(f, address)
        tile = Tile(rows=height, panel=panel, row=self.source, term=1, host=self.host)
        for row, line in enumerate(tile.lines(tile.multiply(f, left, right, self.terms, tile.zeros()))):
            target.at(w=row).store_panel(line, panel)
        f.finish()
        return name


def _end(f: Function, ends: Value, group: Index, bits: int) -> Value:
    return load_index(f, f.at(ends, group, bits // 8), bits)
