"""Transposed copies: rows of the source become columns of the target.

The source is contiguous along rows, the target along columns, and both may have other gaps: NCHW <-> NHWC with
channels, pixels and borders of any size. Blocks are transposed in registers. If one side has only a few elements a
line, such as images of three channels, vectors are interleaved or deinterleaved instead.

Arguments: source, target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from engine.compiler.codegen.ir import (
    Function,
    Index,
    Module,
    Sizes,
    Value,
    as_value,
    hint,
    is_dynamic,
    is_varying,
    lanes_of,
    vector,
)
from engine.compiler.kernels.kernel import Lines, block_of, start
from engine.ir.dims import smallest

# Lanes of a 128-bit part: shuffles across parts are more expensive.
PART = 4
# Cache lines of rows and columns in a tile, so that a line is used completely while it is cached.
TILE_LINES = 4
# Longest line that is interleaved, and the tile size then.
FEW = 4
RUN = 4096


def gather(f: Function, vectors: Sequence[Value], picks: Sequence[tuple[int, int] | None]) -> Value:
    """Emit one vector of lanes picked as (vector, lane) from several of the same size."""
    lanes = len(picks)
    used = sorted({pick[0] for pick in picks if pick is not None})
    result = vectors[used[0]]
    if len(used) == 1:
        lane_numbers = [None if pick is None else pick[1] for pick in picks]
        return (
            result
            if all(p in (None, lane) for lane, p in enumerate(lane_numbers))
            else f.shuffle(result, result, lane_numbers)
        )
    for number, index in enumerate(used[1:]):
        done = set(used[: number + 1])
        kept = [
            (pick[1] if number == 0 else lane) if pick is not None and pick[0] in done else None
            for lane, pick in enumerate(picks)
        ]
        lane_numbers = [
            lanes + pick[1] if pick is not None and pick[0] == index else lane_number
            for pick, lane_number in zip(picks, kept, strict=True)
        ]
        result = f.shuffle(result, vectors[index], lane_numbers)
    return result


def transpose_block(f: Function, lines: Sequence[Value]) -> list[Value]:
    """Emit the transposition of a square block: as many rows as lanes, at least four."""
    lanes = len(lines)
    parts = range(0, lanes, PART)
    low = [part + k // 2 + lanes * (k % 2) for part in parts for k in range(4)]
    columns: list[list[Value]] = []
    for group in range(0, lanes, PART):
        pairs = (lines[group], lines[group + 1]), (lines[group + 2], lines[group + 3])
        ab, cd = ([f.shuffle(x, y, [p + up for p in low]) for up in (0, 2)] for x, y in pairs)
        columns.append([_join(f, x, y, up) for x, y in zip(ab, cd, strict=True) for up in (0, 2)])
    # columns[g][c]: in part q the four elements of column 4q + c from the rows of group g.
    result: list[Value] = [lines[0]] * lanes
    for c in range(PART):
        for q, line in enumerate(_transpose_parts(f, [group[c] for group in columns])):
            result[PART * q + c] = line
    return result


def _join(f: Function, x: Value, y: Value, up: int) -> Value:
    """Emit the lower or upper two lanes of every part of x and of y."""
    lanes = lanes_of(x.type)
    lane_numbers = [part + up + k % 2 + lanes * (k // 2) for part in range(0, lanes, PART) for k in range(4)]
    return f.shuffle(x, y, lane_numbers)


def _transpose_parts(f: Function, lines: list[Value]) -> list[Value]:
    """Transpose a block of 128-bit parts, in log2 steps."""
    lanes, distance = PART * len(lines), 1
    while distance < len(lines):
        lower = [PART * (p if not p & distance else p - distance) + k for p in range(len(lines)) for k in range(PART)]
        upper = [PART * (p if p & distance else p + distance) + k for p in range(len(lines)) for k in range(PART)]
        second = [bool(p & distance) for p in range(len(lines)) for _ in range(PART)]
        following = list(lines)
        for k in range(len(lines)):
            if not k & distance:
                a, b = lines[k], lines[k + distance]
                following[k] = f.shuffle(a, b, [p + lanes * s for p, s in zip(lower, second, strict=True)])
                following[k + distance] = f.shuffle(a, b, [p + lanes * s for p, s in zip(upper, second, strict=True)])
        lines, distance = following, 2 * distance
    return lines


@dataclass(frozen=True, slots=True)
class Repeat:
    """Outer dimension of a transposition: size, and stride on either side."""

    count: int
    source: int
    target: int

    def dynamic(self, sizes: Sizes) -> Repeat:
        """Return this dimension with dynamic size and strides."""
        return Repeat(sizes.dynamic(self.count), sizes.dynamic(self.source), sizes.dynamic(self.target))


@dataclass(frozen=True, kw_only=True)
class Transpose(Lines):
    """target[..., column, row] = source[..., row, column], elements of 4 bytes.

    Args:
        repeats: outer dimensions, outermost first.
        source_row, target_column: stride of rows and of columns, in elements; the other stride is 1 on either side.
    """

    kind = "transpose"
    dynamic_fields = ("repeats", "rows", "columns", "source_row", "target_column")
    repeats: tuple[Repeat, ...] = ()
    rows: int
    columns: int
    source_row: int
    target_column: int

    @property
    def interleaves(self) -> bool:
        """Return whether the target's lines are so short that vectors are interleaved."""
        return not is_varying(self.target_column) and self.rows <= self.target_column <= FEW

    @property
    def separates(self) -> bool:
        """Return whether the source's lines are so short that vectors are deinterleaved."""
        return not is_varying(self.source_row) and self.columns <= self.source_row <= FEW

    @cached_property
    def tile(self) -> tuple[int, int]:
        """Return the rows and columns of a tile."""
        if self.interleaves:
            return self.rows, RUN
        size = TILE_LINES * self.host.memory.line_floats
        return (RUN, self.columns) if self.separates else (size, size)

    @cached_property
    def tiling(self) -> tuple[int, int]:
        """Return the tiles down and across."""
        return -(-self.rows // self.tile[0]), -(-self.columns // self.tile[1])

    @property
    def lines(self) -> int:
        """Return the tiles of all repetitions."""
        return prod(each.count for each in self.repeats) * self.tiling[0] * self.tiling[1]

    @property
    def line_bytes(self) -> int:
        return 8 * smallest(self.rows, self.tile[0]) * smallest(self.columns, self.tile[1])

    def emit(self, module: Module) -> None:
        f, (source, target), chunk = start(module, self, 2)
        with f.loop(*block_of(f, chunk, self.block, self.lines)) as tile:
            rest, across = f.divmod(tile.index, self.tiling[1])
            rest, down = f.divmod(rest, self.tiling[0])
            begin, end = source, target
            for each in reversed(self.repeats):
                rest, index = f.divmod(rest, each.count)
                begin = f.at(begin, f.mul(index, each.source))
                end = f.at(end, f.mul(index, each.target))
            row, column = f.mul(down, self.tile[0]), f.mul(across, self.tile[1])
            stop_row = f.minimum(f.add(row, self.tile[0]), self.rows)
            stop_column = f.minimum(f.add(column, self.tile[1]), self.columns)
            if self.interleaves:
                _Interleaving(self, f, begin, end).emit(column, stop_column)
            elif self.separates:
                _Separating(self, f, begin, end).emit(row, stop_row)
            else:
                _Blocks(self, f, begin, end).emit((row, stop_row), (column, stop_column))
        f.finish()


@dataclass(frozen=True)
class _Tile:
    """Emitter of a tile, with the addresses of its first elements."""

    kernel: Transpose
    f: Function
    source: Value
    target: Value


class _Blocks(_Tile):
    """Square blocks transposed in registers; the last is shifted back, or narrower if there is only one."""

    @property
    def size(self) -> int:
        """Return the rows and columns of a block."""
        return min(self.kernel.host.lanes, 16)

    def emit(self, rows: tuple[Index, Index], columns: tuple[Index, Index]) -> None:
        """Emit a tile."""
        self._blocks(columns, self.kernel.columns, lambda c, width: self._emit_column(rows, c, width))

    def _emit_column(self, rows: tuple[Index, Index], column: Index, width: int) -> None:
        self._blocks(rows, self.kernel.rows, lambda r, height: self._emit(r, height, column, width))

    def _blocks(self, bounds: tuple[Index, Index], end: int, emit: Callable[[Index, int], None]) -> None:
        f, size = self.f, self.size
        if is_dynamic(end) or end < size or end % size == 0:
            _in_blocks(f, bounds, end, size, emit)
            return
        with f.loop(*bounds, size) as block:
            emit(f.minimum(block.index, end - size), size)

    def _emit(self, row: Index, height: int, column: Index, width: int) -> None:
        kernel, f, type_ = self.kernel, self.f, vector(self.size)
        at = f.at(f.at(self.source, f.mul(row, kernel.source_row)), column)
        lines = [f.load_lanes(type_, f.at(at, r * kernel.source_row), width) for r in range(height)]
        lines += [Value("poison", type_)] * (self.size - height)
        at = f.at(f.at(self.target, f.mul(column, kernel.target_column)), row)
        for c, line in enumerate(transpose_block(f, lines)[:width]):
            f.store_lanes(line, f.at(at, c * kernel.target_column), height)


class _Interleaving(_Tile):
    """Vectors of all rows interleaved into pixels."""

    def emit(self, start: Index, stop: Index) -> None:
        """Emit a range of columns."""
        _in_blocks(self.f, (start, stop), self.kernel.columns, self.kernel.host.lanes, self._emit)

    def _emit(self, column: Index, width: int) -> None:
        # These small numbers determine the shuffles, so code is specialised for them.
        rows, pitch, width = int(self.kernel.rows), int(self.kernel.target_column), int(width)
        kernel, f, lanes = self.kernel, self.f, self.kernel.host.lanes
        at = f.at(self.source, column)
        lines = [f.load_lanes(vector(lanes), f.at(at, r * kernel.source_row), width) for r in range(rows)]
        at = f.at(self.target, f.mul(column, pitch))
        for first in range(0, width * pitch, lanes):
            lane_numbers = [divmod(first + lane, pitch) for lane in range(lanes)]
            picks = [(row, c) if c < width and row < rows else None for c, row in lane_numbers]
            f.store_where(gather(f, lines, picks), f.at(at, first), [pick is not None for pick in picks])


class _Separating(_Tile):
    """Vectors of pixels deinterleaved into one vector a column."""

    def emit(self, start: Index, stop: Index) -> None:
        """Emit a range of rows."""
        _in_blocks(self.f, (start, stop), self.kernel.rows, self.kernel.host.lanes, self._emit)

    def _emit(self, row: Index, height: int) -> None:
        columns, pitch, height = int(self.kernel.columns), int(self.kernel.source_row), int(height)
        kernel, f, lanes = self.kernel, self.f, self.kernel.host.lanes
        at = f.at(self.source, f.mul(row, pitch))
        n = (height - 1) * pitch + columns
        counts = [min(lanes, n - first) for first in range(0, n, lanes)]
        lines = [f.load_lanes(vector(lanes), f.at(at, k * lanes), count) for k, count in enumerate(counts)]
        at = f.at(self.target, row)
        for column in range(columns):
            picks = [divmod(r * pitch + column, lanes) if r < height else None for r in range(lanes)]
            f.store_lanes(gather(f, lines, picks), f.at(at, column * kernel.target_column), height)


def _in_blocks(
    f: Function, bounds: tuple[Index, Index], end: int, size: int, emit: Callable[[Index, int], None]
) -> None:
    """Emit ``emit(first, count)`` for blocks of ``size`` between bounds, and a narrower one that ends at ``end``.

    With a dynamic end, the last block is shifted back instead. For a symbolic end below ``size``, the remainder is
    emitted one by one.
    """
    if is_varying(end) and hint(end) < size:
        whole, (first, stop) = end // size * size, bounds
        with f.loop(first, f.minimum(stop, whole), size) as block:
            emit(block.index, size)
        with f.loop(f.maximum(first, whole), stop) as block:
            emit(block.index, 1)
        return
    if is_dynamic(end) and end >= size:
        with f.loop(*bounds, size) as block:
            emit(f.minimum(block.index, end - size), size)
        return
    whole = end // size * size
    first, stop = bounds
    full_stop = f.minimum(stop, whole)
    if whole and not (isinstance(first, int) and isinstance(full_stop, int) and first >= full_stop):
        with f.loop(first, full_stop, size) as block:
            emit(block.index, size)
    if whole < end:
        if isinstance(stop, int):
            emit(whole, end - whole)
            return
        with f.when(f.compare("eq", stop, as_value(end))):
            emit(whole, end - whole)
