"""Direct convolution of channels-last images as a register-tiled product; 1×1 and linear layers are a GEMM.

A register tile is output pixels by a panel of output channels. For every tap and input channel the panel's weights are
loaded once and multiplied by one broadcast input value of each pixel. Images are read in place: pixels of a tile have
constant strides, and the memory plan pads images with a border of zeros. Tiles that would cross an edge are shifted
back, so every tile is whole and some pixels are computed twice.

A volume is its planes, one image after the other; taps of other planes are summed likewise. Planes are not padded: taps
outside the first and last plane are skipped.

Arguments: image (first tap of the first pixel), packed weights, target, operands of the epilogue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from engine.compiler.codegen.ir import Function, Index, Loop, Module, Sizes, Value, hint, is_dynamic
from engine.compiler.kernels.channels import Panel, cases, panels_of, width_of
from engine.compiler.kernels.convolution.conv_tile import TileCode, TileWriter, emit_tile
from engine.compiler.kernels.convolution.tiles import ConvTile
from engine.compiler.kernels.grid import Grid
from engine.compiler.kernels.kernel import Convolution, Strides, derived, element_address, start
from engine.compiler.kernels.products.arithmetic import ARITHMETIC, Words
from engine.compiler.kernels.target import Target
from engine.compiler.kernels.windows import first_plane, is_clipped
from engine.tensor import Array

# Shares of the L2 cache for data reused within a chunk: pixels, and weights.
IMAGE_SHARE = 1 / 2
WEIGHT_SHARE = 3 / 8
# Fewest tiles that divide evenly enough among threads; most times weights may exceed the image for that.
FEW_TILES = 7
WEIGHTS_TO_IMAGE = 4
# Fewest terms of a stream.
LEAST_STREAM = 64
# Most tiles that share the prefetching of a panel.
MOST_PARTS = 16


@dataclass(frozen=True, kw_only=True)
class Conv(Convolution):
    """Convolution of static geometry.

    Args:
        in_channels, out_channels: of one group; input channels are counted in words.
        kernel, stride, dilation: (height, width).
        packed_kernel, first_tap: of the packed weights, if these taps are a part of them: (height, width).
        words: numbers of the image and the weights, a row of ``ARITHMETIC``; the epilogue gets sums as words.
        depth: windows along the planes of volumes; ``batch`` then counts output planes, and its strides are of planes.
        tile: register tile; see ``choose_tile``.
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
    words: Words = "float"

    @cached_property
    def panels(self) -> tuple[Panel, ...]:
        """Return the vectors of every panel of a group."""
        return panels_of(self.out_channels, self.host.lanes, self.tile.vectors)

    @property
    def taps(self) -> int:
        """Return the products summed for one output value."""
        return self.planes * self.kernel[0] * self.kernel[1] * self.in_channels

    @property
    def planes(self) -> int:
        """Return the number of planes of taps."""
        return 1 if self.depth is None else self.depth.kernel

    @property
    def flops(self) -> int:
        products = self.batch * self.rows * self.columns * self.groups * self.out_channels * self.taps
        return 2 * ARITHMETIC[self.words].numbers * products

    @property
    def panel_floats(self) -> int:
        """Return the packed floats of a full panel: its bias, then its weights."""
        return width_of(self.panels[0]) * (1 + self.packed_taps)

    @property
    def weight_bytes(self) -> int:
        """Return the bytes of all packed panels, as if each were full."""
        return 4 * self.panel_floats * self.groups * len(self.panels)

    @property
    def packed_taps(self) -> int:
        """Return the packed weights of one output channel."""
        height, width = self.packed_kernel or self.kernel
        return self.planes * height * width * self.in_channels

    @cached_property
    def tiling(self) -> tuple[int, int]:
        """Return the tiles down and across an image."""
        return -(-self.rows // self.tile.rows), -(-self.columns // self.tile.columns)

    @cached_property
    def grid(self) -> Grid:
        """Return the grid of tiles by panels, cut into chunks."""
        panels = self.groups * len(self.panels)
        sizes = self.batch * self.tiling[0] * self.tiling[1], panels
        tiles = hint(sizes[0])
        tile_bytes = 4 * self.tile.rows * self.tile.columns * self.in_channels * self.stride[0] * self.stride[1]
        tile_bytes *= self.planes
        cache = self.host.memory.second_bytes
        some_tiles = max(1, min(tiles, int(IMAGE_SHARE * cache) // tile_bytes))
        some_panels = max(1, min(panels, int(WEIGHT_SHARE * cache) // (4 * self.panel_floats)))
        grid = Grid(sizes, (some_tiles, some_panels)).evened()
        # With few pixels, reading the weights takes longer than multiplying by them.
        read = 4 * self.panel_floats / tiles / self.host.chunk_bytes
        work, wanted = max(hint(self.flops) / (tiles * panels) / self.host.chunk_flops, read), self.host.wanted_chunks
        # Threads with their own rows reuse pixels from their own caches, but each reads all weights.
        image_bytes, weight_bytes = self.groups * tiles * tile_bytes, panels * 4 * self.panel_floats
        rows_first = tiles >= FEW_TILES and WEIGHTS_TO_IMAGE * image_bytes >= weight_bytes
        return grid.cut(wanted, work, 1, rows_first=rows_first)

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
        kernel = self.packed_kernel or self.kernel
        return self.kind, self.words, self.groups, self.panels, self.in_channels, self.planes, kernel

    def pack(self, weight: Array, bias: Array | None) -> Array:
        """Return weights (O, I, KH, KW), of the packed kernel, and bias (O,) in the order the kernel reads them.

        For a volume, the rows of all planes of taps follow one another: (O, I, KD * KH, KW).
        """
        arithmetic = ARITHMETIC[self.words]
        weight, bias = arithmetic.words_of(weight), None if bias is None else arithmetic.first_sums(bias)
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
        functions = {panel: self.write_tile(module, panel) for panel in dict.fromkeys(self.panels)}
        f, (image, weights, *addresses), chunk = start(module, self, 3 + len(self.epilogue.operands))
        self.begin(f)
        target = Target.of(f, self.epilogue, self.target, addresses)
        tiles, panels = self.grid.ranges(f, chunk)
        with f.loop(*panels) as each_panel:
            group, panel = f.divmod(each_panel.index, len(self.panels))
            weight = f.at(weights, f.mul(each_panel.index, self.panel_floats))
            channel = f.add(f.mul(group, self.out_channels), f.mul(panel, sum(real for _, real in self.panels[0])))
            source = f.at(image, self.first_input(f, group, panel))
            with f.loop(*tiles) as each_tile:
                n, h, across = self._number(f, each_tile)
                w = self._column(f, across)
                strides = Strides(self.source.n, self.source.h * self.stride[0], self.source.w * self.stride[1])
                plane, clipped = first_plane(f, self.depth, n)
                at = element_address(f, source, strides, plane, h, w, 0)
                ahead = self._prefetch_address(f, weight, each_tile.index, tiles[0])
                arguments = [at, weight, *ahead, *clipped, *target.at(n, h, w, channel).addresses]
                for each in cases(f, panel, self.panels):
                    f.call(functions[each], arguments)
        self.end(f)
        f.finish()

    def begin(self, f: Function) -> None:
        """Emit what comes before the tiles of a chunk."""

    def end(self, f: Function) -> None:
        """Emit what comes after the tiles of a chunk."""

    def first_input(self, f: Function, group: Index, panel: Index) -> Index:
        """Return the first input channel that a panel of a group reads."""
        return f.mul(group, self.in_channels)

    @property
    def taps_in_run(self) -> int:
        """Return the taps of a row in one K loop: all if they are contiguous in memory, else one."""
        return self.kernel[1] if self.dilation[1] == 1 and self.source.w == self.in_channels else 1

    def write_tile(self, module: Module, panel: Panel) -> str:
        """Emit the micro-kernel of a tile and return its name."""
        return emit_tile(module, self.tile_of(panel), TileWriter)

    def tile_of(self, panel: Panel) -> TileCode:
        """Return the description of a tile's micro-kernel."""
        (kh, kw), in_run = self.kernel, self.taps_in_run
        of_row = (self.packed_kernel or self.kernel)[1] * self.in_channels
        planes = (self.source.n * (self.depth.dilation if self.depth else 1), self.packed_taps // self.planes)
        loops = [
            (1 if is_clipped(self.depth) else self.planes, *planes),
            (kh, self.source.h * self.dilation[0], of_row),
            (kw // in_run, self.source.w * self.dilation[1], self.in_channels),
        ]
        run, memory = self.in_channels * in_run, self.host.memory
        streams = self.streams if run == self.taps else 1
        return TileCode(
            name=f"{self.name}_{'_'.join(str(real) for _, real in panel)}",
            rows=self.tile.rows,
            columns=self.tile.columns,
            panel=panel,
            steps=(self.stride[0] * self.source.h, self.stride[1] * self.source.w),
            loops=tuple(each for each in loops if each[0] > 1),
            run=run,
            skipped=self.first_tap[0] * of_row + self.first_tap[1] * self.in_channels,
            planes=planes if is_clipped(self.depth) else None,
            target=self.target,
            epilogue=self.epilogue,
            streams=streams,
            fetching=self.fetching,
            arithmetic=ARITHMETIC[self.words],
            multiply_add=ARITHMETIC[self.words].multiply_add(self.host),
            memory=memory if streams == 1 else replace(memory, ahead_bytes=memory.stream_ahead_bytes),
        )

    @property
    def streams(self) -> int:
        """Return the parts of a panel's weights to read alternately: several memory streams, for a single tile."""
        memory = self.host.memory
        room = self.host.most_rows(self.tile.vectors) // (self.tile.rows * self.tile.columns)
        streams = min(memory.streams, room)
        if streams <= 1 or self.words != "float" or self.taps < LEAST_STREAM * streams:
            return 1
        if self.weight_bytes <= memory.second_bytes:
            return 1
        return streams if self.grid.sizes[0] == 1 else 1

    @cached_property
    def fetching(self) -> int:
        """Return n so that each of 2**n tiles prefetches its share of the next panel; 0 for none.

        Weights come from memory, and the first tile of a panel would wait for all of them.
        """
        tiles = self.grid.block[0]
        if is_clipped(self.depth) or self.weight_bytes <= self.host.memory.first_bytes:
            return 0
        parts = min(width_of(panel) for panel in self.panels)
        if not is_dynamic(tiles):
            parts = min(parts, tiles)
        return min(MOST_PARTS, parts).bit_length() - 1

    def _prefetch_address(self, f: Function, weight: Value, tile: Index, first: Index) -> list[Value]:
        """Emit the address a tile prefetches from the next panel: one argument, or none."""
        if not self.fetching:
            return []
        part = f.minimum(f.sub(tile, first), 2**self.fetching - 1)
        return [f.at(f.at(weight, self.panel_floats), f.mul(part, self.panel_floats >> self.fetching))]

    def _number(self, f: Function, tile: Loop) -> tuple[Index, Index, Index]:
        """Emit a tile's image, first row and number across; the last tile of a column is shifted back."""
        rest, across = f.divmod(tile.index, self.tiling[1])
        n, down = f.divmod(rest, self.tiling[0])
        h = f.minimum(f.mul(down, self.tile.rows), self.rows - self.tile.rows)
        return n, h if is_dynamic(self.tiling[0]) or self.tiling[0] > 1 else 0, across

    def _column(self, f: Function, across: Index) -> Index:
        """Emit the first column of a tile; the last is shifted back."""
        width = self.tile.columns
        if not is_dynamic(self.tiling[1]) and self.tiling[1] == 1:
            return 0
        return f.minimum(f.mul(across, width), self.columns - width)
