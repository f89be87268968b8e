"""Maximum and average pooling of channels-last images.

An output row is made in two steps, for some vectors of channels at a time. The input rows of its windows are reduced
to one line, which is kept on the stack with padding around it; then windows of the line are reduced to pixels. Windows
are clipped at the top and bottom by reducing fewer rows, so the image needs no padding. For volumes, the rows of all
planes of a window are reduced, and windows are clipped likewise.

Where windows are so wide that a line exceeds the stack limit, pixels are computed one by one: every window is read,
clipped at all borders, and a sum is accumulated from partial sums of its rows.

Arguments: image (its first pixel), target, operands of the epilogue.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Literal, Self, TypeAlias

from engine.compiler.codegen.ir import (
    Function,
    Index,
    Module,
    Sizes,
    Value,
    as_value,
    constant,
    is_dynamic,
    lanes_of,
    vector,
)
from engine.compiler.kernels.channels import Panel, cases, load_panel, panels_of, starts_of, width_of
from engine.compiler.kernels.folding import largest, total
from engine.compiler.kernels.grid import Grid, Range
from engine.compiler.kernels.kernel import Epilogue, Kernel, Strides, derived, element_address, start
from engine.compiler.kernels.numbers import FLOAT, load_numbers, size_of
from engine.compiler.kernels.target import Target
from engine.compiler.kernels.windows import WindowAxis
from engine.ir.dims import hint, is_symbolic, smallest

# Vectors of channels reduced together.
VECTORS = 4
# Largest line kept on the stack.
LONGEST_LINE_BYTES = 64 * 1024
Load: TypeAlias = Callable[[Value, Index], list[Value]]
"""Loads the vectors of a panel, so many elements after an address."""
# Least number of a dtype, if it is not -inf.
LEAST = {"uint8": 0.0, "int8": -128.0}
# Without a line, windows are reduced in parts of this many columns.
PART = 512
# Taps that are unrolled; more are a loop.
UNROLLED = 16


@dataclass(frozen=True, kw_only=True)
class PoolLayout(Kernel):
    """Geometry of pooling.

    Args:
        mode: maximum (NaN if a window holds one) or mean.
        down, across: windows along rows and columns.
        depth: windows along the planes of volumes; ``batch`` then counts output planes, and its strides are of planes.
        counts_padding: whether the divisor of the mean includes the padding.
        divisor: fixed divisor of the mean, or None.
        source, target: strides of the images, 1 along channels.
        numbers: dtype of the source in memory; see ``numbers``.
    """

    mode: Literal["max", "average"]
    batch: int
    channels: int
    down: WindowAxis
    across: WindowAxis
    depth: WindowAxis = WindowAxis(size=1, count=1)
    counts_padding: bool = True
    divisor: int | None = None
    source: Strides
    target: Strides
    numbers: str = FLOAT
    epilogue: Epilogue = field(default_factory=Epilogue)

    def dynamic(self, sizes: Sizes) -> Self:
        if not self.holds_line:
            return self
        dynamic = self.with_dynamic(sizes, "batch", "down", "across", "source", "target", "epilogue")
        return derived(dynamic, grid=self.grid.dynamic(sizes), tile=sizes.dynamic_count(self.tile), room=self.longest)

    @cached_property
    def panels(self) -> tuple[Panel, ...]:
        """Return the vectors reduced together."""
        return panels_of(self.channels, self.host.lanes, VECTORS)

    @property
    def flops(self) -> int:
        taps = self.depth.kernel * self.down.kernel * self.across.kernel
        return self.batch * self.down.count * self.across.count * self.channels * taps

    @property
    def longest(self) -> int:
        """Return the pixels reserved for a line of dynamic size: a quarter of the L1 cache, or one window if larger.

        Adaptive windows of symbolic sizes may be as long as the stack allows.
        """
        if self.across.is_adaptive:
            return LONGEST_LINE_BYTES // (4 * width_of(self.panels[0]))
        return max(self.across.extent, self.host.memory.first_bytes // (16 * width_of(self.panels[0])))

    @cached_property
    def room(self) -> int:
        """Return the pixels reserved for a line."""
        return self.line_pixels

    @cached_property
    def tile(self) -> int:
        """Return the output columns that share a line."""
        pixels, axis = self.host.memory.first_bytes // (16 * width_of(self.panels[0])), self.across
        limit = (pixels - axis.extent) // axis.stride + 1
        if axis.is_adaptive and is_symbolic((axis.size, axis.count)):
            return 1  # the extent of several windows depends on the sizes
        if axis.is_adaptive:
            limit = pixels * axis.count // axis.size - 1
        lines = -(-axis.count // max(1, limit))
        # Symbolic simplification does not prove that it is at most the limit.
        return smallest(-(-axis.count // lines), max(1, limit))

    @property
    def tiles(self) -> int:
        """Return the lines of an output row."""
        return -(-self.across.count // self.tile)

    @property
    def line_pixels(self) -> int:
        """Return the pixels of a line."""
        axis = self.across
        if axis.is_adaptive:
            return smallest(axis.size, -(-self.tile * axis.size // axis.count) + 1)
        return (self.tile - 1) * axis.stride + axis.extent

    @property
    def holds_line(self) -> bool:
        """Return whether a line is short enough for the stack."""
        return 4 * self.room * width_of(self.panels[0]) <= LONGEST_LINE_BYTES

    @cached_property
    def grid(self) -> Grid:
        """Return the grid of output rows by panels, cut into chunks."""
        sizes = self.batch * self.down.count, len(self.panels)
        taps = hint(self.across.size * self.down.reach + self.across.count * self.across.reach)
        row_bytes = 4 * self.channels * taps * self.depth.reach // sizes[1]  # every tap counted
        return Grid(sizes, sizes).cut(self.host.wanted_chunks, row_bytes, 8 * self.host.chunk_bytes)

    @property
    def chunks(self) -> int:
        return self.grid.chunks

    def ranges(self, f: Function, chunk: Index) -> tuple[Range, Range]:
        """Emit the output rows and the panels of a chunk."""
        return self.grid.ranges(f, chunk)


class PoolRow:
    """Emitter of the function for some output pixels of a row and a panel.

    Its arguments are image and target (with its operands) at the panel's first channel, the output plane of a volume,
    the output row, and the number of the line in the row.
    """

    def __init__(self, kernel: PoolLayout, module: Module, panel: Panel) -> None:
        self.kernel, self.panel = kernel, panel
        name = f"{kernel.name}_{'_'.join(str(real) for _, real in panel)}"
        numbers = [("i64", each) for each in ("plane", "row", "tile")]
        self.f = f = module.inner(name, [("ptr", "image"), *numbers, *kernel.epilogue.parameters])
        self.image, plane, self.h, self.tile, *addresses = f.parameters
        self.plane: Index = plane if kernel.depth.count > 1 else 0
        self.target = Target.of(f, kernel.epilogue, kernel.target, addresses)
        self.starts = starts_of(panel)
        self.width = width_of(panel)
        self.fold = largest if kernel.mode == "max" else total
        neutral = 0.0 if kernel.mode == "average" else LEAST.get(kernel.numbers, -math.inf)
        self.neutral = [constant(neutral, vector(lanes)) for lanes, _ in panel]

    def emit(self) -> str:
        """Emit the function and return its name."""
        kernel, f, axis = self.kernel, self.f, self.kernel.across
        if not kernel.holds_line:
            self._walk_windows()
            f.finish()
            return f.name
        self.line = f.reserve(kernel.room * self.width)
        w = self._first_window()
        stop = f.minimum(f.add(w, kernel.tile), axis.count)
        first, end = axis.first(f, w), axis.end(f, f.sub(stop, 1))
        left, right = f.maximum(first, 0), f.minimum(end, axis.size)
        self._pad(0, f.sub(left, first))
        self._fold_rows(first, left, right)
        self._pad(f.sub(right, first), f.sub(end, first))
        self._fold_columns(first, w, stop)
        f.finish()
        return f.name

    def _first_window(self) -> Index:
        """Return the first window of the line; dynamic sizes may have several lines."""
        tiles = self.kernel.tiles
        return 0 if not is_dynamic(tiles) and tiles == 1 else self.f.mul(self.tile, self.kernel.tile)

    def _walk_windows(self) -> None:
        """Emit the pixels one by one, without a line."""
        kernel, f, axis = self.kernel, self.f, self.kernel.across
        w = self._first_window()
        (plane, planes), (row, rows) = kernel.depth.clip(f, self.plane), kernel.down.clip(f, self.h)
        top = self._at(self._at(self.image, f.mul(plane, kernel.source.n)), f.mul(row, kernel.source.h))
        with f.loop(w, f.minimum(f.add(w, kernel.tile), axis.count)) as x:
            column, columns = axis.clip(f, x.index)
            corner = self._at(top, f.mul(column, kernel.source.w))
            with f.loop(0, planes, carry=self.neutral) as each:
                window = self._at(corner, f.mul(each.index, kernel.depth.dilation * kernel.source.n))
                with f.loop(0, rows, carry=each.carried) as down:
                    line = self._at(window, f.mul(down.index, kernel.down.dilation * kernel.source.h))
                    down.carry(self._folded(down.carried, self._fold_line(line, columns)))
                each.carry(down.results)
            self._finish(x.index, each.results)

    def _fold_line(self, line: Value, columns: Index) -> list[Value]:
        """Emit the reduction of a window's taps in one row, part by part."""
        f, gap = self.f, self.kernel.across.dilation * self.kernel.source.w
        with f.loop(0, columns, PART, carry=self.neutral) as part:
            at, count = self._at(line, f.mul(part.index, gap)), f.minimum(f.sub(columns, part.index), PART)
            part.carry(self._folded(part.carried, self._loop(at, gap, count, self._load)))
        return part.results

    def _folded(self, some: list[Value], others: list[Value]) -> list[Value]:
        return [self.fold(self.f, pair) for pair in zip(some, others, strict=True)]

    def _pad(self, start: Index, stop: Index) -> None:
        """Fill a range of the line with the neutral element."""
        if self.kernel.across.is_inside or (isinstance(start, int) and isinstance(stop, int) and start >= stop):
            return
        with self.f.loop(start, stop) as pixel:
            self._write_line(pixel.index, self.neutral)

    def _fold_rows(self, first: Index, left: Index, right: Index) -> None:
        """Fill the line: for columns ``left`` to ``right``, reduce the rows of the windows."""
        f, axis, source = self.f, self.kernel.down, self.kernel.source
        (plane, planes), (row, count) = self.kernel.depth.clip(f, self.plane), axis.clip(f, self.h)
        top = self._at(self._at(self.image, f.mul(plane, source.n)), f.mul(row, source.h))
        gaps = self.kernel.depth.dilation * source.n, axis.dilation * source.h

        def walk(count: Index) -> None:
            with f.loop(left, right) as x:
                at = self._at(top, f.mul(x.index, source.w))
                values = self._fold_taps(at, gaps[0], planes, partial(self._fold_plane, gaps[1], count))
                self._write_line(f.sub(x.index, first), values)

        if axis.is_adaptive or axis.kernel > UNROLLED or axis.is_inside:
            walk(count)
        else:
            is_whole = f.compare("eq", as_value(count), as_value(axis.kernel))
            with f.when(is_whole):
                walk(axis.kernel)
            with f.when(f.binary("xor", is_whole, constant(1, "i1"))):  # keeps the common case inline
                walk(count)

    def _fold_plane(self, gap: int, count: Index, plane: Value, offset: Index) -> list[Value]:
        """Emit the reduction of the rows of a window in one plane."""
        return self._fold_taps(self._at(plane, offset), gap, count, self._load)

    def _fold_columns(self, first: Index, w: Index, stop: Index) -> None:
        """Reduce windows of the line to pixels and store them."""
        f, axis = self.f, self.kernel.across
        gap = axis.dilation * self.width
        with f.loop(w, stop) as x:
            begin = axis.first(f, x.index)
            at = f.at(self.line, f.mul(f.sub(begin, first), self.width))
            count = f.sub(axis.end(f, x.index), begin) if axis.is_adaptive else axis.kernel
            self._finish(x.index, self._fold_taps(at, gap, count, self._read_line))

    def _finish(self, window: Value, values: list[Value]) -> None:
        """Store a reduced window as a pixel."""
        f = self.f
        if self.kernel.mode == "average":
            factor = self._factor(window)
            values = [f.fmul(value, f.splat(factor, lanes_of(value.type))) for value in values]
        self.target.store_panel(values, self.panel, window)

    def _fold_taps(self, at: Value, gap: int, count: Index, load: Load) -> list[Value]:
        """Emit the reduction of taps ``gap`` floats apart; few taps are unrolled."""
        if not isinstance(count, int) or count > UNROLLED:
            return self._loop(at, gap, count, load)
        if not count:  # a window of padding alone
            return self.neutral
        taps = [load(at, k * gap) for k in range(count)]
        return [self.fold(self.f, each) for each in zip(*taps, strict=True)]

    def _loop(self, at: Value, gap: int, count: Index, load: Load) -> list[Value]:
        with self.f.loop(0, count, carry=self.neutral) as tap:
            values = load(at, self.f.mul(tap.index, gap))
            tap.carry(self._folded(tap.carried, values))
        return tap.results

    def _factor(self, window: Value) -> Value:
        """Emit the reciprocal of the divisor of the mean."""
        kernel, f = self.kernel, self.f
        if kernel.divisor is not None:
            return constant(1 / kernel.divisor, "float")
        down = kernel.down.divisor(f, self.h, kernel.counts_padding)
        planes = kernel.depth.divisor(f, self.plane, kernel.counts_padding)
        count = f.mul(f.mul(planes, down), kernel.across.divisor(f, window, kernel.counts_padding))
        if isinstance(count, int):
            return constant(1 / count, "float")
        return f.fdiv(constant(1.0, "float"), f.convert("sitofp", count, "float"))

    def _at(self, base: Value, index: Index) -> Value:
        """Emit the address of an element of the image."""
        return self.f.at(base, index, size_of(self.kernel.numbers))

    def _load(self, address: Value, offset: Index) -> list[Value]:
        f, at, dtype = self.f, self._at(address, offset), self.kernel.numbers
        return [
            load_numbers(f, vector(lanes), self._at(at, first), real, dtype=dtype)
            for first, (lanes, real) in zip(self.starts, self.panel, strict=True)
        ]

    def _read_line(self, address: Value, offset: Index) -> list[Value]:
        return load_panel(self.f, self.f.at(address, offset), self.panel, is_padded=True)

    def _write_line(self, index: Index, values: list[Value]) -> None:
        address = self.f.at(self.line, self.f.mul(index, self.width))
        for value, first in zip(values, self.starts, strict=True):
            self.f.store(value, self.f.at(address, first))


@dataclass(frozen=True, kw_only=True)
class Pool(PoolLayout):
    """Pooling of static geometry; see ``PoolLayout``."""

    kind = "pool"

    def emit(self, module: Module) -> None:
        functions = {each: PoolRow(self, module, each).emit() for each in dict.fromkeys(self.panels)}
        f, (image, *addresses), chunk = start(module, self, 2 + len(self.epilogue.operands))
        target = Target.of(f, self.epilogue, self.target, addresses)
        rows, panels = self.ranges(f, chunk)
        with f.loop(*panels) as panel, f.loop(0, self.tiles) as tile, f.loop(*rows) as row:
            n, h = f.divmod(row.index, self.down.count)
            channel = f.mul(panel.index, VECTORS * self.host.lanes)
            volume, window = f.divmod(n, self.depth.count)
            source = element_address(f, image, self.source, f.mul(volume, self.depth.size), 0, 0, channel, self.numbers)
            positions = [as_value(each) for each in (window, h)]
            arguments = [source, *positions, tile.index, *target.at(n, h, 0, channel).addresses]
            for each in cases(f, panel.index, self.panels):
                f.call(functions[each], arguments)
        f.finish()
