"""Depthwise convolution of channels-last images: every channel has its own filters, and no sum crosses channels.

A register tile is output pixels of one vector of channels. The input rows below it are read once: every input vector is
loaded once and multiplied by all taps that read it, and an output row is stored after its last tap. Weights stay in
registers while they fit. Tiles that would cross an edge are shifted back, as in ``conv``.

Arguments: image (first tap of the first pixel), packed weights, target, operands of the epilogue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from engine.compiler.codegen.ir import Function, Index, Module, Sizes, Value, hint, is_dynamic, vector
from engine.compiler.kernels.channels import cases, vectors_of, width_of
from engine.compiler.kernels.convolution.depthwise_tile import UNROLLED, DepthwiseTile, is_resident
from engine.compiler.kernels.grid import Grid
from engine.compiler.kernels.kernel import Convolution, derived, element_address, start
from engine.compiler.kernels.numbers import FLOAT, load_numbers, size_of
from engine.compiler.kernels.target import Target
from engine.compiler.kernels.windows import clip_parameters, first_plane
from engine.tensor import Array

# Fewest rows of tiles that divide evenly enough among threads.
FEW_ROWS = 8


@dataclass(frozen=True, kw_only=True)
class Depthwise(Convolution):
    """Convolution of static geometry with one input and one output channel a group.

    Args:
        channels: of the output.
        kernel, stride, dilation: (height, width).
        tile: register tile; see ``choose_tile``.
        depth: windows along the planes of volumes, as in ``conv``; a tile has one row then.
        numbers: dtype of the image in memory; see ``numbers``. Sums of bytes are whole numbers, and exact below 2**24.
    """

    kind = "depthwise"
    channels: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    tile: DepthwiseTile
    numbers: str = FLOAT

    @cached_property
    def vectors(self) -> list[tuple[int, int]]:
        """Return the vectors (lanes, channels) of a pixel."""
        return vectors_of(self.channels, self.host.lanes)

    @property
    def taps(self) -> int:
        """Return the products summed for one output value."""
        return self.planes * self.kernel[0] * self.kernel[1]

    @property
    def planes(self) -> int:
        """Return the number of planes of taps."""
        return 1 if self.depth is None else self.depth.kernel

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.rows * self.columns * self.channels * self.taps

    @cached_property
    def tiling(self) -> tuple[int, int]:
        """Return the tiles down and across an image."""
        return -(-self.rows // self.tile.rows), -(-self.columns // self.tile.columns)

    @property
    def is_plane_small(self) -> bool:
        """Return whether all rows of a vector of channels fit the L1 cache; then vectors are the outer loop."""
        pixels = self.rows * self.stride[0] * self.columns * self.stride[1]
        return 4 * hint(pixels) * self.host.lanes <= self.host.memory.first_bytes // 2

    @cached_property
    def grid(self) -> Grid:
        """Return the grid of tile rows by vectors, cut into chunks."""
        sizes = rows, vectors = self.batch * self.tiling[0], len(self.vectors)
        work, least = hint(self.flops) / (hint(rows) * vectors), self.host.chunk_flops / 2
        return Grid(sizes, sizes).cut(self.host.wanted_chunks, work, least, rows_first=hint(rows) >= FEW_ROWS)

    @property
    def chunks(self) -> int:
        return self.grid.chunks

    def dynamic(self, sizes: Sizes) -> Self:
        return derived(super().dynamic(sizes), grid=self.grid.dynamic(sizes))

    @property
    def min_sizes(self) -> Sequence[tuple[int, int]]:
        return (self.rows, self.tile.rows), (self.columns, self.tile.columns)

    @property
    def packing(self) -> object:
        return self.kind, self.channels, self.vectors, self.taps

    def pack(self, weight: Array, bias: Array | None) -> Array:
        """Return weights (C, 1, KD * KH, KW) and bias (C,) packed by vector: the bias, then the taps."""
        width = width_of(self.vectors)
        flat = np.zeros((1 + self.taps, width), weight.dtype)
        flat[0, : self.channels] = 0 if bias is None else bias
        flat[1:, : self.channels] = weight.reshape(self.channels, self.taps).T
        starts = np.cumsum([0, *(lanes for lanes, _ in self.vectors)])
        blocks = [flat[:, a:b].ravel() for a, b in zip(starts[:-1], starts[1:], strict=True)]
        return np.concatenate(blocks)

    def emit(self, module: Module) -> None:
        functions = {each: self._emit_tile_row(module, *each) for each in dict.fromkeys(self.vectors)}
        f, (image, weights, *addresses), chunk = start(module, self, 3 + len(self.epilogue.operands))
        target = Target.of(f, self.epilogue, self.target, addresses)
        rows, vectors = self.grid.ranges(f, chunk)
        outer, inner = (vectors, rows) if self.is_plane_small else (rows, vectors)
        with f.loop(*outer) as one, f.loop(*inner) as other:
            each, row = (one.index, other.index) if self.is_plane_small else (other.index, one.index)
            n, down = f.divmod(row, self.tiling[0])
            h: Index = 0
            if is_dynamic(self.tiling[0]) or self.tiling[0] > 1:
                h = f.minimum(f.mul(down, self.tile.rows), self.rows - self.tile.rows)
            channel = f.mul(each, self.host.lanes)
            plane, clipped = first_plane(f, self.depth, n)
            arguments = [
                element_address(f, image, self.source, plane, f.mul(h, self.stride[0]), 0, channel, self.numbers),
                f.at(weights, f.mul(each, self.host.lanes * (1 + self.taps))),
                *clipped,
                *target.at(n, h, 0, channel).addresses,
            ]
            for vector_ in cases(f, each, self.vectors):
                f.call(functions[vector_], arguments)
        f.finish()

    def _emit_tile_row(self, module: Module, lanes: int, real: int) -> str:
        """Emit the inner function of a row of tiles of one vector; its arguments are addresses at the first pixel."""
        name = f"{self.name}_{lanes}_{real}"
        parameters = [("ptr", "image"), ("ptr", "weights"), *clip_parameters(self.depth), *self.epilogue.parameters]
        f = module.inner(name, parameters)
        keeps_weights = self.planes == 1 and is_resident(self.host, self.tile, self.kernel, self.stride, self.dilation)
        _TileRow(self, f, lanes, real, keeps_weights).emit()
        return name


class _TileRow:
    """Emitter of a row of tiles of one vector of channels."""

    def __init__(self, kernel: Depthwise, f: Function, lanes: int, real: int, keeps_weights: bool) -> None:
        self.kernel, self.f, self.lanes, self.real = kernel, f, lanes, real
        self.image, self.weights, *rest = f.parameters
        clipped = len(clip_parameters(kernel.depth))
        self.clipped, addresses = rest[:clipped], rest[clipped:]
        self.target = Target.of(f, kernel.epilogue, kernel.target, addresses)
        self.resident = [self._weight(tap) for tap in range(-1, kernel.taps)] if keeps_weights else []

    def emit(self) -> None:
        """Emit the function."""
        kernel, f = self.kernel, self.f
        across = kernel.tiling[1]
        if not is_dynamic(across) and across == 1:
            self._emit_tile(0)
        else:
            with f.loop(0, across) as tile:
                self._emit_tile(f.minimum(f.mul(tile.index, kernel.tile.columns), kernel.columns - kernel.tile.columns))
        f.finish()

    def _emit_tile(self, w: Index) -> None:
        kernel, f = self.kernel, self.f
        image = self._at(self.image, f.mul(w, kernel.stride[1] * kernel.source.w))
        target = self.target.at(w=w)
        if kernel.planes > 1 or self.clipped:
            self._finish_row(0, self._loop_over_planes(image), target)
        elif self._is_long:
            self._finish_row(
                0, self._loop_over_taps(image, self.weights, [self._weight(-1)] * kernel.tile.columns), target
            )
        else:
            self._walk_rows(image, target)

    @property
    def _is_long(self) -> bool:
        """Return whether a plane has too many taps to unroll."""
        kernel = self.kernel
        return kernel.tile.rows == 1 and kernel.kernel[0] * kernel.kernel[1] * kernel.tile.columns > UNROLLED

    def _loop_over_planes(self, image: Value) -> list[Value]:
        """Emit the sums of one row of a volume, one plane of taps after the other."""
        kernel, f = self.kernel, self.f
        (height, width), totals = kernel.kernel, [self._weight(-1)] * kernel.tile.columns
        skipped, taken = self.clipped or (0, kernel.planes)
        gap = kernel.source.n * (kernel.depth.dilation if kernel.depth else 1)
        with f.loop(0, taken, carry=totals) as plane:
            at = self._at(image, f.mul(plane.index, gap))
            weights = f.at(self.weights, f.mul(f.add(plane.index, skipped), height * width * self.lanes))
            if self._is_long:
                plane.carry(self._loop_over_taps(at, weights, plane.carried))
            else:
                of_row = {0: list(plane.carried)}
                for ky in range(height):
                    self._add_line(self._at(at, ky * kernel.dilation[0] * kernel.source.h), [(0, ky)], of_row, weights)
                plane.carry(of_row[0])
        return plane.results

    def _walk_rows(self, image: Value, target: Target) -> None:
        """Emit every input row of the tile once; an output row is stored after its last input row."""
        kernel, tile = self.kernel, self.kernel.tile
        totals: dict[int, list[Value]] = {}
        taps = range(kernel.kernel[0])
        for i in sorted({row * kernel.stride[0] + ky * kernel.dilation[0] for row in range(tile.rows) for ky in taps}):
            lines = [(row, *divmod(i - row * kernel.stride[0], kernel.dilation[0])) for row in range(tile.rows)]
            uses = [(row, ky) for row, ky, rest in lines if rest == 0 and 0 <= ky < kernel.kernel[0]]
            for row, ky in uses:
                if ky == 0:
                    totals[row] = [self._value(-1)] * tile.columns
            self._add_line(self._at(image, i * kernel.source.h), uses, totals)
            for row, ky in uses:
                if ky == kernel.kernel[0] - 1:
                    self._finish_row(row, totals.pop(row), target)

    def _add_line(
        self, line: Value, uses: list[tuple[int, int]], totals: dict[int, list[Value]], weights_at: Value | None = None
    ) -> None:
        """Add the products of an input row to the output rows that read it.

        Args:
            weights_at: address of the bias before the weights, unless they are the kernel's first.
        """
        kernel, f = self.kernel, self.f
        kw, step, gap = kernel.kernel[1], kernel.stride[1], kernel.dilation[1]
        weights = {row: [self._value(ky * kw + kx, weights_at) for kx in range(kw)] for row, ky in uses}
        for position in sorted({t * step + kx * gap for t in range(kernel.tile.columns) for kx in range(kw)}):
            value = self._input(self._at(line, position * kernel.source.w))
            for row, _ in uses:
                for kx in range(kw):
                    t, rest = divmod(position - kx * gap, step)
                    if rest == 0 and 0 <= t < kernel.tile.columns:
                        totals[row][t] = f.fma(value, weights[row][kx], totals[row][t])

    def _loop_over_taps(self, image: Value, weights_at: Value, totals: list[Value]) -> list[Value]:
        """Emit the sums of one row in two loops over taps: for filters too large to unroll."""
        kernel, f = self.kernel, self.f
        with f.loop(0, kernel.kernel[0], carry=totals) as down:
            line = self._at(image, f.mul(down.index, kernel.dilation[0] * kernel.source.h))
            weights = f.at(weights_at, f.mul(f.add(f.mul(down.index, kernel.kernel[1]), 1), self.lanes))
            with f.loop(0, kernel.kernel[1], carry=down.carried) as across:
                first = self._at(line, f.mul(across.index, kernel.dilation[1] * kernel.source.w))
                weight = f.load(vector(self.lanes), f.at(weights, f.mul(across.index, self.lanes)))
                values = [
                    self._input(self._at(first, t * kernel.stride[1] * kernel.source.w))
                    for t in range(kernel.tile.columns)
                ]
                across.carry([f.fma(x, weight, total) for x, total in zip(values, across.carried, strict=True)])
            down.carry(across.results)
        return down.results

    def _finish_row(self, row: int, totals: list[Value], target: Target) -> None:
        for column, total in enumerate(totals):
            target.store(total, self.real, row, column)

    def _input(self, address: Value) -> Value:
        """Load a vector of input values."""
        return load_numbers(self.f, vector(self.lanes), address, self.real, dtype=self.kernel.numbers)

    def _at(self, base: Value, index: Index) -> Value:
        """Emit the address of an element of the image."""
        return self.f.at(base, index, size_of(self.kernel.numbers))

    def _value(self, tap: int, weights: Value | None = None) -> Value:
        """Return the weights of a tap, or the bias for -1: from a register if kept there, else loaded."""
        return self.resident[1 + tap] if self.resident else self._weight(tap, weights)

    def _weight(self, tap: int, weights: Value | None = None) -> Value:
        return self.f.load(vector(self.lanes), self.f.at(weights or self.weights, (1 + tap) * self.lanes))
