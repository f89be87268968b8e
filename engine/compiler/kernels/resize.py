"""Resampling of channels-last images: nearest, bilinear, bicubic, whatever has a fixed number of taps along each axis.

Which elements a new row or column is made of, and their weights, are a table made ahead; for every output pixel whole
vectors of channels are added up, along the row first.

Arguments: image, table (see pack()), target, operands of the epilogue.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from engine.compiler.codegen.ir import Function, Index, Module, Value, lanes_of, vector
from engine.compiler.kernels.channels import vectors_of
from engine.compiler.kernels.kernel import Epilogue, Kernel, Strides, block_of, place, start
from engine.compiler.kernels.target import Target
from engine.tensor import Array

# Vectors of a pixel written out; more are walked in a loop.
UNROLLED = 4

# What the taps of a row's elements and of a column's are multiplied by.
Weights: TypeAlias = tuple[list[Value | None], list[Value | None]]


@dataclass(frozen=True, kw_only=True)
class Resize(Kernel):
    """Resampling of static geometry.

    Args:
        rows, columns: of the output.
        taps: elements a new row and a new column are made of.
        is_weighted: whether they are multiplied by weights; a single one may be taken as it is.
        source, target: strides of the images, 1 along channels.
    """

    kind = "resize"
    batch: int
    rows: int
    columns: int
    channels: int
    taps: tuple[int, int]
    is_weighted: bool
    source: Strides
    target: Strides
    epilogue: Epilogue = field(default_factory=Epilogue)

    @property
    def flops(self) -> int:
        taps = self.taps[0] * (self.taps[1] + 1) if self.is_weighted else 0
        return 2 * self.batch * self.rows * self.columns * self.channels * taps

    @property
    def tile(self) -> int:
        """Columns of a row that go together."""
        return max(1, min(self.columns, self.host.chunk_bytes // (4 * self.channels)))

    @property
    def tiles(self) -> int:
        """Pieces of rows of all images."""
        return self.batch * self.rows * -(-self.columns // self.tile)

    @property
    def block(self) -> int:
        """Pieces of rows of a chunk."""
        return max(1, min(self.tiles, self.host.chunk_bytes // (4 * self.channels * self.tile)))

    @property
    def chunks(self) -> int:
        return -(-self.tiles // self.block)

    def pack(self, down: tuple[Array, Array | None], across: tuple[Array, Array | None]) -> Array:
        """The table: for every row, then every column, the indices of its taps and their weights.

        ``down`` and ``across`` are indices (taps, count) and weights (taps, count); indices are stored as the bits
        of 32-bit integers.
        """
        parts = [self._pack_axis(indices, weights) for indices, weights in (down, across)]
        return np.concatenate(parts)

    def _pack_axis(self, indices: Array, weights: Array | None) -> Array:
        bits = indices.astype(np.int32).view(np.float32)
        entries = [bits] if weights is None or not self.is_weighted else [bits, weights.astype(np.float32)]
        return np.ascontiguousarray(np.concatenate(entries).T).reshape(-1)

    def emit(self, module: Module) -> None:
        f, (image, table, *addresses), chunk = start(module, self, 3 + len(self.epilogue.operands))
        entries = [taps * (1 + self.is_weighted) for taps in self.taps]
        across_table = f.at(table, self.rows * entries[0])
        with f.loop(*block_of(f, chunk, self.block, self.tiles)) as tile:
            rest, piece = f.divmod(tile.index, -(-self.columns // self.tile))
            n, h = f.divmod(rest, self.rows)
            down = self._entry(f, f.at(table, f.mul(h, entries[0])), self.taps[0], self.source.h)
            lines = [f.at(place(f, image, self.source, n, 0, 0, 0), distance) for distance, _ in down]
            with f.loop(*block_of(f, piece, self.tile, self.columns)) as x:
                across = self._entry(f, f.at(across_table, f.mul(x.index, entries[1])), self.taps[1], self.source.w)
                taps = [[f.at(line, distance) for distance, _ in across] for line in lines]
                weights = [weight for _, weight in down], [weight for _, weight in across]
                target = Target.of(f, self.epilogue, self.target, addresses).at(n, h, x.index)
                self._emit_pixel(f, taps, weights, target)
        f.finish()

    def _entry(self, f: Function, address: Value, taps: int, stride: int) -> list[tuple[Index, Value | None]]:
        """The distance and the weight of each tap of a row or column."""
        indices = [f.convert("sext", f.load("i32", f.at(address, tap)), "i64") for tap in range(taps)]
        weights = [f.load("float", f.at(address, taps + tap)) if self.is_weighted else None for tap in range(taps)]
        return [(f.mul(index, stride), weight) for index, weight in zip(indices, weights, strict=True)]

    def _emit_pixel(self, f: Function, taps: list[list[Value]], weights: Weights, target: Target) -> None:
        """All channels of a pixel."""
        vectors = vectors_of(self.channels, self.host.lanes)
        whole = self.channels // self.host.lanes

        def emit(channel: Index, lanes: int, real: int) -> None:
            target.store(self._sum(f, taps, weights, channel, lanes, real), real, c=channel)

        if whole > UNROLLED:
            with f.loop(0, whole * self.host.lanes, self.host.lanes) as loop:
                emit(loop.index, self.host.lanes, self.host.lanes)
        for number, (lanes, real) in enumerate(vectors):
            if number >= whole or whole <= UNROLLED:
                emit(number * self.host.lanes, lanes, real)

    def _sum(
        self, f: Function, taps: list[list[Value]], weights: Weights, channel: Index, lanes: int, real: int
    ) -> Value:
        """The weighted sum of the taps of a vector of channels."""
        rows = [
            _weighted(f, [f.load_lanes(vector(lanes), f.at(at, channel), real) for at in line], weights[1])
            for line in taps
        ]
        return _weighted(f, rows, weights[0])


def _weighted(f: Function, values: list[Value], weights: list[Value | None]) -> Value:
    result: Value | None = None
    for value, weight in zip(values, weights, strict=True):
        if weight is None:
            return value
        factor = f.splat(weight, lanes_of(value.type))
        result = f.fmul(value, factor) if result is None else f.fma(value, factor, result)
    return values[0] if result is None else result
