"""Resampling of channels-last images and volumes with a fixed number of taps an axis: nearest, linear, cubic.

A precomputed table holds the taps and weights of every new row and column. Every output pixel is summed in whole
vectors of channels, along the row first. A volume is its planes, one image after the other.

Arguments: image, table (see ``pack``), target, operands of the epilogue.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Self, TypeAlias

import numpy as np

from engine.compiler.codegen.ir import Function, Index, Module, Sizes, Value, lanes_of, vector
from engine.compiler.kernels.channels import vectors_of
from engine.compiler.kernels.kernel import Epilogue, Lines, Strides, block_of, derived, element_address, start
from engine.compiler.kernels.target import Target
from engine.ir.dims import largest, smallest
from engine.tensor import Array

# Vectors of a pixel that are unrolled; more are a loop.
UNROLLED = 4

# Offset and weight of each tap of an output element along an axis.
Entry: TypeAlias = list[tuple[Index, Value | None]]


@dataclass(frozen=True, kw_only=True)
class Resize(Lines):
    """Resampling of static geometry.

    Args:
        rows, columns: of the output.
        taps: of an output row and of an output column.
        planes: of a volume, before and after, if they are resampled too; ``batch`` then counts output planes, and the
            strides along it are those of planes.
        plane_taps: of an output plane.
        is_weighted: whether taps have weights; a single tap may be copied.
        source, target: strides of the images, 1 along channels.
    """

    kind = "resize"
    dynamic_fields = ("batch", "rows", "columns", "source", "target", "planes", "epilogue")
    batch: int
    rows: int
    columns: int
    channels: int
    taps: tuple[int, int]
    is_weighted: bool
    source: Strides
    target: Strides
    planes: tuple[int, int] | None = None
    plane_taps: int = 1
    epilogue: Epilogue = field(default_factory=Epilogue)

    @property
    def flops(self) -> int:
        taps = self.plane_taps * self.taps[0] * (self.taps[1] + 1) if self.is_weighted else 0
        return 2 * self.batch * self.rows * self.columns * self.channels * taps

    def dynamic(self, sizes: Sizes) -> Self:
        return derived(super().dynamic(sizes), tile=sizes.dynamic_count(self.tile))

    @cached_property
    def tile(self) -> int:
        """Return the columns of a segment of a row."""
        return largest(1, smallest(self.columns, self.host.chunk_bytes // (4 * self.channels)))

    @property
    def lines(self) -> int:
        """Return the segments of rows of all images."""
        return self.batch * self.rows * -(-self.columns // self.tile)

    @property
    def line_bytes(self) -> int:
        return 4 * self.channels * self.tile

    def pack(self, *axes: tuple[Array, Array | None]) -> Array:
        """Return the table: for every plane (if resampled), row and column, its taps and their weights.

        Each axis is given as indices (taps, count) and weights (taps, count). Indices are stored as the bits of
        integers as wide as elements.
        """
        parts = [self._pack_axis(indices, weights) for indices, weights in axes]
        return np.concatenate(parts)

    def _pack_axis(self, indices: Array, weights: Array | None) -> Array:
        is_double = self.precision == "double"
        bits = indices.astype(np.int64).view(np.float64) if is_double else indices.astype(np.int32).view(np.float32)
        entries = [bits] if weights is None or not self.is_weighted else [bits, weights.astype(bits.dtype)]
        return np.ascontiguousarray(np.concatenate(entries).T).reshape(-1)

    def emit(self, module: Module) -> None:
        f, (image, table, *addresses), chunk = start(module, self, 3 + len(self.epilogue.operands))
        entries = [taps * (1 + self.is_weighted) for taps in (self.plane_taps, *self.taps)]
        down_table = f.at(table, self.planes[1] * entries[0] if self.planes else 0)
        across_table = f.at(down_table, self.rows * entries[1])
        with f.loop(*block_of(f, chunk, self.block, self.lines)) as tile:
            rest, segment = f.divmod(tile.index, -(-self.columns // self.tile))
            n, h = f.divmod(rest, self.rows)
            first, depth = self._planes(f, table, n, entries[0])
            down = self._entry(f, f.at(down_table, f.mul(h, entries[1])), self.taps[0], self.source.h)
            corner = element_address(f, image, self.source, first, 0, 0, 0)
            lines = [[f.at(f.at(corner, plane), row) for row, _ in down] for plane, _ in depth]
            with f.loop(*block_of(f, segment, self.tile, self.columns)) as x:
                across = self._entry(f, f.at(across_table, f.mul(x.index, entries[2])), self.taps[1], self.source.w)
                target = Target.of(f, self.epilogue, self.target, addresses).at(n, h, x.index)
                self._emit_pixel(f, lines, (depth, down, across), target)
        f.finish()

    def _planes(self, f: Function, table: Value, n: Index, entry: int) -> tuple[Index, Entry]:
        """Emit the first plane of an output plane's volume, and the taps relative to it."""
        if self.planes is None:
            return n, [(0, None)]
        before, after = self.planes
        volume, d = f.divmod(n, after)
        taps = self._entry(f, f.at(table, f.mul(d, entry)), self.plane_taps, self.source.n)
        return f.mul(volume, before), taps

    def _entry(self, f: Function, address: Value, taps: int, stride: int) -> Entry:
        """Emit the offset and the weight of each tap of a row or column."""
        indices = [f.convert("sext", f.load("i32", f.at(address, tap)), "i64") for tap in range(taps)]
        weights = [f.load("float", f.at(address, taps + tap)) if self.is_weighted else None for tap in range(taps)]
        return [(f.mul(index, stride), weight) for index, weight in zip(indices, weights, strict=True)]

    def _emit_pixel(
        self, f: Function, lines: list[list[Value]], entries: tuple[Entry, Entry, Entry], target: Target
    ) -> None:
        """Emit all channels of a pixel, from the rows of every plane."""
        vectors = vectors_of(self.channels, self.host.lanes)
        whole = self.channels // self.host.lanes

        def emit(channel: Index, lanes: int, real: int) -> None:
            target.store(self._sum(f, lines, entries, channel, lanes, real), real, c=channel)

        if whole > UNROLLED:
            with f.loop(0, whole * self.host.lanes, self.host.lanes) as loop:
                emit(loop.index, self.host.lanes, self.host.lanes)
        for number, (lanes, real) in enumerate(vectors):
            if number >= whole or whole <= UNROLLED:
                emit(number * self.host.lanes, lanes, real)

    def _sum(
        self,
        f: Function,
        lines: list[list[Value]],
        entries: tuple[Entry, Entry, Entry],
        channel: Index,
        lanes: int,
        real: int,
    ) -> Value:
        """Emit the weighted sum of the taps of a vector of channels."""
        of_planes, of_rows, of_columns = ([weight for _, weight in entry] for entry in entries)
        planes = []
        for plane in lines:
            rows = []
            for line in plane:
                addresses = [f.at(f.at(line, distance), channel) for distance, _ in entries[2]]
                rows.append(_weighted(f, [f.load_lanes(vector(lanes), at, real) for at in addresses], of_columns))
            planes.append(_weighted(f, rows, of_rows))
        return _weighted(f, planes, of_planes)


def _weighted(f: Function, values: list[Value], weights: list[Value | None]) -> Value:
    result: Value | None = None
    for value, weight in zip(values, weights, strict=True):
        if weight is None:
            return value
        factor = f.splat(weight, lanes_of(value.type))
        result = f.fmul(value, factor) if result is None else f.fma(value, factor, result)
    return values[0] if result is None else result
