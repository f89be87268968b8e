"""Geometry of pooling: panels of channels, lines of a row, chunks."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, Self

from engine.compiler.codegen.ir import Function, Index, Sizes
from engine.compiler.kernels.channels import Panel, panels_of, width_of
from engine.compiler.kernels.grid import Grid, Range
from engine.compiler.kernels.kernel import Epilogue, Kernel, Strides, derived
from engine.compiler.kernels.numbers import FLOAT
from engine.compiler.kernels.windows import WindowAxis
from engine.ir.dims import hint, is_symbolic, smallest

# Vectors of channels reduced together.
VECTORS = 4
# Largest line kept on the stack.
LONGEST_LINE_BYTES = 64 * 1024


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
