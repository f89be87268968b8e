"""Direct convolution of channels-last images as a register-blocked product; 1×1 and linear layers are a GEMM.

A tile of output pixels times a panel of output channels is held in registers. For every tap and input channel the
panel's weights are loaded once and multiplied by one input value of each pixel, broadcast. The images are read in
place: pixels of a tile lie at constant distances, padding is a border of zeros that the memory plan lays around the
image. Tiles that would hang over an edge are shifted back, so every tile is whole and some pixels are computed twice;
where that costs too much, the last tiles of a row have a pixel less instead.

A volume is its planes, one image after the other; taps of other planes are summed likewise. Beyond the first and the
last plane there are no zeros: what a window has there is left out.

Arguments: image (first tap of the first pixel), packed weights, target, operands of the epilogue.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Self

import numpy as np

from engine.compiler.codegen.host import Host
from engine.compiler.codegen.ir import Function, Index, Loop, Module, Sizes, is_open
from engine.compiler.kernels.axis import WindowAxis
from engine.compiler.kernels.channels import Panel, cases, few, panels_of, vectors_of, width_of
from engine.compiler.kernels.convolution.conv_tile import TileCode, emit_tile
from engine.compiler.kernels.convolution.integers import ways
from engine.compiler.kernels.convolution.planes import first_plane, is_clipped
from engine.compiler.kernels.grid import Grid
from engine.compiler.kernels.kernel import Convolution, Strides, derived, place, start
from engine.compiler.kernels.target import Target
from engine.tensor import Array

# Shares of the second-level cache for what is read again while a chunk runs: pixels, and weights.
IMAGE_SHARE = 3 / 16
WEIGHT_SHARE = 3 / 8
# Tiles that can be shared out evenly enough; and how many times as large as the image weights may be for that.
FEW_TILES = 7
WEIGHTS_TO_IMAGE = 4
# Vectors of a panel that are tried; the first of equals is taken.
PANEL_SIZES = (2, 3, 4, 1, 6, 8)
# Tiles of two widths take twice the code, some 10 ms of a compiler: what they save, at least, as a share and in cycles.
LEAST_SAVED = 0.01
LEAST_CYCLES = 20_000
# Pixels of an image by which panels are chosen for images of many sizes; most tiles divide it.
TYPICAL = 5040
# What the tile that is best for it may cost more than another: so that many sizes share code.
NEAR = 1.1


@dataclass(frozen=True, slots=True)
class ConvTile:
    """Output pixels computed at once, and how many vectors of channels for each.

    Args:
        varies: whether the last tiles of a row have a column less, so that none overlap.
    """

    rows: int
    columns: int
    vectors: int
    varies: bool = False


@dataclass(frozen=True, kw_only=True)
class Conv(Convolution):
    """A convolution of static geometry.

    Args:
        in_channels, out_channels: of one group.
        kernel, stride, dilation: (height, width).
        packed_kernel, first_tap: of the packed weights, where these taps are a part of them: (height, width).
        integers: how many integers an input value and a weight are, side by side: 2 of 16 bits, or 4 of 8, in the image
            without sign; their products are summed as 32-bit integers. 0 for a float.
        has_shift: whether the epilogue's first operand is such integers, too, to be added to the sums.
        depth: the windows along the planes of volumes; ``batch`` counts the planes of the output then, and the strides
            along it are those of planes.
        tile: how the work is blocked; see choose_tile().
    """

    kind = "conv"
    in_channels: int
    out_channels: int
    groups: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    tile: ConvTile
    packed_kernel: tuple[int, int] | None = None
    first_tap: tuple[int, int] = (0, 0)
    depth: WindowAxis | None = None
    integers: int = 0
    has_shift: bool = False

    @cached_property
    def panels(self) -> tuple[Panel, ...]:
        """The vectors of every panel of a group."""
        return panels_of(self.out_channels, self.host.lanes, self.tile.vectors)

    @property
    def taps(self) -> int:
        """Products summed for one output value."""
        return self.planes * self.kernel[0] * self.kernel[1] * self.in_channels

    @property
    def planes(self) -> int:
        """Planes of taps."""
        return 1 if self.depth is None else self.depth.kernel

    @property
    def flops(self) -> int:
        products = self.batch * self.rows * self.columns * self.groups * self.out_channels * self.taps
        return 2 * max(1, self.integers) * products

    @property
    def panel_floats(self) -> int:
        """Packed floats of a full panel: its bias, then its weights."""
        return width_of(self.panels[0]) * (1 + self.packed_taps)

    @property
    def packed_taps(self) -> int:
        """Weights of one output channel."""
        height, width = self.packed_kernel or self.kernel
        return self.planes * height * width * self.in_channels

    @cached_property
    def tiling(self) -> tuple[int, int]:
        """Tiles down and across an image."""
        return -(-self.rows // self.tile.rows), -(-self.columns // self.tile.columns)

    @property
    def wide_tiles(self) -> int:
        """Tiles across an image before those that have a column less."""
        return _wide_tiles(self.columns, self.tile.columns) if self.tile.varies else self.tiling[1]

    @cached_property
    def grid(self) -> Grid:
        """Tiles and panels, and what a chunk has of them."""
        tiles = self.batch * self.tiling[0] * self.tiling[1]
        panels = self.groups * len(self.panels)
        tile_bytes = 4 * self.tile.rows * self.tile.columns * self.in_channels * self.stride[0] * self.stride[1]
        tile_bytes *= self.planes
        cache = self.host.memory.second_bytes
        some_tiles = max(1, min(tiles, int(IMAGE_SHARE * cache) // tile_bytes))
        some_panels = max(1, min(panels, int(WEIGHT_SHARE * cache) // (4 * self.panel_floats)))
        grid = Grid((tiles, panels), (some_tiles, some_panels)).evened()
        work, wanted = self.flops / (tiles * panels), self.host.wanted_chunks
        # Threads that have rows of their own read what they wrote themselves, but all of the weights.
        image_bytes, weight_bytes = self.groups * tiles * tile_bytes, panels * 4 * self.panel_floats
        rows_first = tiles >= FEW_TILES and WEIGHTS_TO_IMAGE * image_bytes >= weight_bytes
        return grid.cut(wanted, work, self.host.chunk_flops, rows_first=rows_first)

    @property
    def chunks(self) -> int:
        return self.grid.chunks

    def opened(self, sizes: Sizes) -> Self:
        return derived(super().opened(sizes), grid=self.grid.opened(sizes))

    @property
    def packing(self) -> object:
        return self.kind, self.groups, self.panels, self.in_channels, self.planes, self.packed_kernel or self.kernel

    def pack(self, weight: Array, bias: Array | None) -> Array:
        """Weights (O, I, KH, KW), of the packed kernel, and bias (O,) in the order the kernel streams them.

        Of a volume, the rows of all planes of taps are one after the other: (O, I, KD * KH, KW).
        """
        packed = np.zeros((self.groups, len(self.panels), self.panel_floats), weight.dtype)
        grouped = weight.reshape(self.groups, self.out_channels, *weight.shape[1:])
        first = 0
        for number, panel in enumerate(self.panels):
            count, width = sum(real for _, real in panel), width_of(panel)
            block = np.zeros((self.groups, 1 + self.packed_taps, width), weight.dtype)
            block[:, 0, :count] = 0 if bias is None else bias.reshape(self.groups, -1)[:, first : first + count]
            taps = grouped[:, first : first + count].transpose(0, 3, 4, 2, 1)
            block[:, 1:, :count] = taps.reshape(self.groups, self.packed_taps, count)
            packed[:, number, : block[0].size] = block.reshape(self.groups, -1)
            first += count
        return packed

    def emit(self, module: Module) -> None:
        functions = {
            (panel, columns): emit_tile(module, self._tile_of(panel, columns))
            for columns in range(self.tile.columns - self.tile.varies, self.tile.columns + 1)
            for panel in dict.fromkeys(self.panels)
        }
        f, (image, weights, *addresses), chunk = start(module, self, 3 + len(self.epilogue.operands))
        target = Target.of(f, self.epilogue, self.target, addresses)
        tiles, panels = self.grid.ranges(f, chunk)
        with f.loop(*panels) as each_panel:
            group, panel = f.divmod(each_panel.index, len(self.panels))
            weight = f.at(weights, f.mul(each_panel.index, self.panel_floats))
            channel = f.add(f.mul(group, self.out_channels), f.mul(panel, sum(real for _, real in self.panels[0])))
            source = f.at(image, f.mul(group, self.in_channels))
            with f.loop(*tiles) as each_tile:
                n, h, across = self._number(f, each_tile)
                w = self._column(f, across)
                strides = Strides(self.source.n, self.source.h * self.stride[0], self.source.w * self.stride[1])
                plane, met = first_plane(f, self.depth, n)
                at = place(f, source, strides, plane, h, w, 0)
                arguments = [at, weight, *met, *target.at(n, h, w, channel).addresses]
                for columns in self._widths(f, across):
                    for each in cases(f, panel, self.panels):
                        f.call(functions[each, columns], arguments)
        f.finish()

    def _tile_of(self, panel: Panel, columns: int) -> TileCode:
        kh, kw = self.kernel
        is_run = kw == 1 or (self.dilation[1] == 1 and self.source.w == self.in_channels)
        pixels, inputs = self.batch * self.rows * self.columns, self.source.w * self.stride[0] * self.stride[1]
        of_row = (self.packed_kernel or self.kernel)[1] * self.in_channels
        planes = (self.source.n * (self.depth.dilation if self.depth else 1), self.packed_taps // self.planes)
        loops = [
            (1 if is_clipped(self.depth) else self.planes, *planes),
            (kh, self.source.h * self.dilation[0], of_row),
        ]
        if not is_run:
            loops.append((kw, self.source.w * self.dilation[1], self.in_channels))
        return TileCode(
            name=f"{self.name}_{columns}_{'_'.join(str(real) for _, real in panel)}",
            rows=self.tile.rows,
            columns=columns,
            panel=panel,
            steps=(self.stride[0] * self.source.h, self.stride[1] * self.source.w),
            loops=tuple(each for each in loops if each[0] > 1),
            run=self.in_channels * (kw if is_run else 1),
            skipped=self.first_tap[0] * of_row + self.first_tap[1] * self.in_channels,
            planes=planes if is_clipped(self.depth) else None,
            target=self.target,
            epilogue=self.epilogue,
            integers=self.integers,
            ways=ways(self.host),
            has_shift=self.has_shift,
            memory=self.host.memory,
            # A tensor so large lies beyond the second-level cache when a kernel comes back to it.
            is_far=4 * pixels * self.target.w >= 2 * self.host.memory.second_bytes,
            # A group reads a few of the channels, but all would be fetched.
            is_source_far=self.groups == 1 and 4 * pixels * inputs >= self.host.memory.second_bytes,
        )

    def _number(self, f: Function, tile: Loop) -> tuple[Index, Index, Index]:
        """A tile's image, its first row, and its number across; the last of a column is shifted back."""
        rest, across = f.divmod(tile.index, self.tiling[1])
        n, down = f.divmod(rest, self.tiling[0])
        h = f.minimum(f.mul(down, self.tile.rows), self.rows - self.tile.rows)
        return n, h if is_open(self.tiling[0]) or self.tiling[0] > 1 else 0, across

    def _column(self, f: Function, across: Index) -> Index:
        """The first column of a tile; the last is shifted back, unless tiles vary."""
        width = self.tile.columns
        if not is_open(self.tiling[1]) and self.tiling[1] == 1:
            return 0
        if self.tile.varies:
            return f.add(f.mul(across, width - 1), f.minimum(across, self.wide_tiles))
        return f.minimum(f.mul(across, width), self.columns - width)

    def _widths(self, f: Function, across: Index) -> Iterator[int]:
        """What code is to be written for, so that it runs for a tile: its columns."""
        if not self.tile.varies:
            yield self.tile.columns
            return
        is_wide = f.less(across, self.wide_tiles)
        with f.when(is_wide):
            yield self.tile.columns
        with f.unless(is_wide):
            yield self.tile.columns - 1


def _wide_tiles(columns: int, width: int) -> int:
    """Of the fewest tiles of a width, or one less, that cover a row without overlap: those of the width."""
    return columns - -(-columns // width) * (width - 1)


def choose_tile(
    host: Host,
    rows: int,
    columns: int,
    out_channels: int,
    taps: int = 256,
    sizes: Sequence[int] = PANEL_SIZES,
    *,
    may_vary: bool = False,
    is_open: bool = False,
) -> ConvTile:
    """The tile that wastes least; see ``rank_tiles``."""
    return rank_tiles(host, rows, columns, out_channels, taps, sizes, may_vary=may_vary, is_open=is_open)[0]


def rank_tiles(
    host: Host,
    rows: int,
    columns: int,
    out_channels: int,
    taps: int = 256,
    sizes: Sequence[int] = PANEL_SIZES,
    *,
    may_vary: bool = False,
    is_open: bool = False,
    count: int = 1,
) -> list[ConvTile]:
    """The tiles that waste least: pixels computed twice, lanes left empty, loads that outweigh products.

    Args:
        taps: products summed for one output value; with few of them the beginning and the end of a tile count.
        sizes: vectors that a panel may have.
        may_vary: whether the last tiles of a row may have a column less.
        is_open: whether images come in many sizes: then a few tiles are tried, with one size of panels.
        count: how many are wanted, the best first; there may be fewer.
    """
    if is_open:
        sizes = (choose_tile(host, 1, TYPICAL, out_channels, taps, sizes).vectors,)
    vectors_of_all = len(vectors_of(out_channels, host.lanes))
    found: list[tuple[float, ConvTile]] = []
    for vectors in sizes:
        limit = host.most_rows(vectors)
        if limit < 1 or vectors > max(vectors_of_all, 1):
            continue
        for tile_rows in few(4, min(rows, limit)) if is_open else range(1, min(rows, limit) + 1):
            most = limit // tile_rows
            for tile_columns in few(most, columns) if is_open else range(1, min(columns, most) + 1):
                tile = ConvTile(tile_rows, tile_columns, vectors)
                across, wide = -(-columns // tile_columns), _wide_tiles(columns, tile_columns)
                one = _cycles_of_all(host, tile, vectors_of_all, taps)
                row = across * one
                if may_vary and 0 < wide < across:
                    less = replace(tile, columns=tile_columns - 1)
                    varied = wide * one + (across - wide) * _cycles_of_all(host, less, vectors_of_all, taps)
                    saved = row - varied
                    if saved > LEAST_SAVED * row and -(-rows // tile_rows) * saved > LEAST_CYCLES:
                        row, tile = varied, replace(tile, varies=True)
                found.append((-(-rows // tile_rows) * row, tile))
    if not found:
        return [ConvTile(1, 1, 1)]
    if count == 1:
        cost, tile = min(found, key=lambda each: each[0])
        usual = _usual(host, rows > 1, out_channels, taps, tuple(sizes)) if is_open and columns != TYPICAL else tile
        return [usual if any(each == usual and its <= NEAR * cost for its, each in found) else tile]
    return [tile for _, tile in sorted(found, key=lambda each: each[0])[:count]]


@lru_cache(maxsize=256)
def _usual(host: Host, has_rows: bool, out_channels: int, taps: int, sizes: tuple[int, ...]) -> ConvTile:
    """The tile of a large image, where images come in many sizes."""
    return choose_tile(host, TYPICAL if has_rows else 1, TYPICAL, out_channels, taps, sizes, is_open=True)


def _cycles_of_all(host: Host, tile: ConvTile, count: int, taps: int) -> float:
    """What so many vectors of channels cost at the pixels of a tile."""
    whole, rest = divmod(count, tile.vectors)
    return whole * _cycles(host, tile, tile.vectors, taps) + (_cycles(host, tile, rest, taps) if rest else 0)


def _cycles(host: Host, tile: ConvTile, vectors: int, taps: int) -> float:
    """What a tile costs: products, or the latency of adding to too few sums, or loads; and its beginning and end."""
    pixels = tile.rows * tile.columns
    loads = 1.1 * (pixels + vectors) / host.repeats_a_product
    step = max(pixels * vectors, host.products_in_flight, loads) + 0.35 * vectors + 0.25
    return taps * step + 60 + 2.5 * pixels * vectors
