"""Packing of the right factor into panels of columns, in the order a tile reads it.

Row-major matrices are copied; column-major ones are transposed in registers, in square blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.compiler.codegen.ir import Function, Index, Value, as_value, constant, vector
from engine.compiler.kernels.channels import Panel, load_panel, starts_of, width_of
from engine.compiler.kernels.products.matrix import Matrix
from engine.compiler.kernels.transpose import PART, transpose_block


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """Packing of a matrix (rows, columns).

    Args:
        source: its strides; one of them is 1, or there is one row or one column.
        rows: of the matrix, and of every panel.
        panels: vectors (lanes, columns) of every panel; only the last may differ from the others.
    """

    source: Matrix
    rows: int
    panels: tuple[Panel, ...]

    @property
    def panel_floats(self) -> int:
        """Return the floats of a full panel."""
        return self.rows * width_of(self.panels[0])

    @property
    def floats(self) -> int:
        """Return the floats of all panels."""
        return self.panel_floats * len(self.panels)

    def emit(self, f: Function, source: Value, target: Value, columns: Index, rows: Index | None = None) -> None:
        """Emit the packing of the panels with the first ``columns`` columns; of all rows by default.

        Args:
            columns, rows: number needed, at least one; more may be packed.
        """
        rows = self.rows if rows is None else rows
        is_one = sum(real for panel in self.panels for _, real in panel) == 1
        pack = self._copy if self.source.column == 1 or is_one else self._transpose
        width = sum(real for _, real in self.panels[0])
        wanted, _ = f.divmod(f.add(columns, width - 1), width)

        def one(panel: Panel, number: Index) -> None:
            begin = f.at(source, f.mul(number, width * self.source.column))
            pack(f, panel, begin, f.at(target, f.mul(number, self.panel_floats)), rows)

        for_each_panel(f, (0, wanted), self.panels, one)

    def _copy(self, f: Function, panel: Panel, source: Value, target: Value, rows: Index) -> None:
        """Copy row by row; a single column may have any stride."""
        with f.loop(0, rows) as row:
            values = load_panel(f, f.at(source, f.mul(row.index, self.source.row)), panel)
            at = f.at(target, f.mul(row.index, width_of(panel)))
            for value, first in zip(values, starts_of(panel), strict=True):
                f.store(value, f.at(at, first))

    def _transpose(self, f: Function, panel: Panel, source: Value, target: Value, rows: Index) -> None:
        """Transpose in square blocks of the vector width."""
        column = 0
        for (lanes, real), first in zip(panel, starts_of(panel), strict=True):
            begin, end = f.at(source, column * self.source.column), f.at(target, first)
            if lanes < PART:
                for k in range(real):
                    self._turn(f, f.at(begin, k * self.source.column), f.at(end, k), rows, width_of(panel))
            else:
                self._transpose_blocks(f, (begin, end), lanes, real, width_of(panel))
            column += real

    def _turn(self, f: Function, source: Value, target: Value, rows: Index, pitch: int) -> None:
        """Pack one contiguous column."""
        with f.loop(0, rows) as row:
            f.store(f.load("float", f.at(source, row.index)), f.at(target, f.mul(row.index, pitch)))

    def _transpose_blocks(self, f: Function, ends: tuple[Value, Value], lanes: int, real: int, pitch: int) -> None:
        type_ = vector(lanes)
        whole = self.rows // lanes * lanes

        def block(row: Index, height: int) -> None:
            begin, end = f.at(ends[0], row), f.at(ends[1], f.mul(row, pitch))
            lines = [f.load_lanes(type_, f.at(begin, k * self.source.column), height) for k in range(real)]
            lines += [constant(0.0, type_)] * (lanes - real)
            for k, line in enumerate(transpose_block(f, lines)[:height]):
                f.store(line, f.at(end, k * pitch))

        if whole:
            with f.loop(0, whole, lanes) as row:
                block(row.index, lanes)
        if whole < self.rows:
            block(whole, self.rows - whole)


def for_each_panel(
    f: Function, wanted: tuple[Index, Index], panels: tuple[Panel, ...], emit: Callable[[Panel, Index], None]
) -> None:
    """Emit ``emit(panel, number)`` for a range of panels: a loop over the full panels, then the last.

    Args:
        wanted: half-open range; if its start is dynamic, the last panel must be in the range.
    """
    begin, end = wanted
    equal = len(panels) if panels[-1] == panels[0] else len(panels) - 1
    stop = f.minimum(end, equal)
    if not isinstance(stop, int) or stop > 0:
        with f.loop(begin, stop) as each:
            emit(panels[0], each.index)
    if equal == len(panels):
        return
    if isinstance(end, int):
        if end == len(panels):
            emit(panels[-1], equal)
        return
    with f.when(f.compare("eq", as_value(end), as_value(len(panels)))):
        emit(panels[-1], equal)
