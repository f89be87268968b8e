"""What a Winograd convolution knows before any code is written: tiles, groups of channels, memory, packed weights."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from engine.compiler.kernels.channels import Panel, panels_of, vectors_of, width_of
from engine.compiler.kernels.kernel import Convolution, Strides
from engine.compiler.kernels.winograd.blocking import Blocking
from engine.compiler.kernels.winograd.stages import Scratch, spread
from engine.compiler.kernels.winograd.transforms import Filtering
from engine.errors import CompileError
from engine.tensor import Array


@dataclass(frozen=True, kw_only=True)
class Layout(Convolution):
    """A 3×3 convolution of stride 1 or 2 and one group, or a dilated one of stride 1.

    Dilated by d it is d² convolutions of images of every d-th pixel.

    Args:
        rows, columns: multiples of the dilation.
        source: of the padded image, of ``extent`` pixels.
        filtering: the stride and the output tile; see choose().
        blocking: how the work falls into chunks and registers; see choose_blocking().
    """

    in_channels: int
    out_channels: int
    filtering: Filtering
    blocking: Blocking
    dilation: int = 1

    def __post_init__(self) -> None:
        """Check sizes and blocking.

        Raises:
            CompileError: images of every d-th pixel differ in size, or a tile would be added to its sums twice.
        """
        if self.rows % self.dilation or self.columns % self.dilation:
            raise CompileError("no multiple of the dilation", found=(self.rows, self.columns), expected=self.dilation)
        if self.depths > 1 and self.blocking.tiles % self.blocking.at_once:
            raise CompileError("input channels are summed in parts, but tiles overlap", found=self.blocking)

    @property
    def output_tile(self) -> int:
        """m: rows and columns of an output tile."""
        return self.filtering.output_tile

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of an output image, of every d-th pixel where there is a dilation."""
        return self.rows // self.dilation, self.columns // self.dilation

    @property
    def extent(self) -> tuple[int, int]:
        """Rows and columns of such an image, padded, that are read."""
        rows, columns = (self.filtering.stride * (size - 1) + 3 for size in self.size)
        return rows, columns

    @cached_property
    def tiling(self) -> tuple[int, int]:
        """Tiles down and across an image."""
        rows, columns = (-(-size // self.output_tile) for size in self.size)
        return rows, columns

    def within(self, strides: Strides) -> Strides:
        """Strides from pixel to pixel of such an image."""
        return Strides(strides.n, strides.h * self.dilation, strides.w * self.dilation, strides.c)

    @property
    def overlap(self) -> tuple[int, int]:
        """Rows and columns that the last tile down and across shares with the one before it."""
        counts = zip(self.tiling, self.size, strict=True)
        down, across = (count * self.output_tile - size if count > 1 else 0 for count, size in counts)
        return down, across

    @property
    def tiles(self) -> int:
        """Tiles of all images."""
        return self.batch * self.dilation**2 * self.tiling[0] * self.tiling[1]

    @cached_property
    def groups(self) -> list[tuple[Panel, ...]]:
        """The panels of the output channels by group; the last group may be smaller."""
        panels = panels_of(self.out_channels, self.host.lanes, self.blocking.vectors)
        return [panels[k : k + self.blocking.panels] for k in range(0, len(panels), self.blocking.panels)]

    @cached_property
    def widths(self) -> tuple[int, int]:
        """Floats that the output channels of the first and the last group take, empty lanes included."""
        first, last = (sum(width_of(panel) for panel in group) for group in (self.groups[0], self.groups[-1]))
        return first, last

    @property
    def width(self) -> int:
        """Floats that all output channels take."""
        return self.widths[0] * (len(self.groups) - 1) + self.widths[1]

    @property
    def bias_floats(self) -> int:
        """Where the packed weights begin; the bias comes before them."""
        line_floats = self.host.memory.line_floats
        return line_floats * -(-self.width // line_floats)

    @property
    def packed_floats(self) -> int:
        """Floats of bias and weights."""
        return self.bias_floats + self.filtering.weights * self.in_channels * self.width

    @property
    def depths(self) -> int:
        """Blocks the input channels fall into."""
        return -(-self.in_channels // self.blocking.depth)

    @cached_property
    def scratch(self) -> Scratch:
        """The memory of a chunk."""
        vectors = vectors_of(min(self.blocking.depth, self.in_channels), self.host.lanes)
        return Scratch(
            filtering=self.filtering,
            tiles=self.blocking.tiles,
            pitch=spread(width_of(vectors), self.host.memory.line_floats),
            sum_pitch=spread(self.widths[0], self.host.memory.line_floats),
        )

    @property
    def blocks(self) -> int:
        """Blocks of tiles; the last is shifted back to be whole."""
        return -(-self.tiles // self.blocking.tiles)

    @property
    def chunks(self) -> int:
        return len(self.groups) * self.blocks

    @property
    def flops(self) -> int:
        """Operations of the direct convolution this replaces, so that rates compare."""
        return 2 * self.batch * self.rows * self.columns * self.out_channels * self.in_channels * 9

    @property
    def packing(self) -> object:
        return "winograd", self.filtering, self.groups, self.in_channels, self.blocking.depth, self.bias_floats

    def pack(self, weight: Array, bias: Array | None) -> Array:
        """Weights (O, I, 3, 3), transformed in float64, and bias (O,), as the kernel streams them: (floats,) float32.

        Order: bias; by group, block of input channels, filter value and panel: (input channel, output channel).
        """
        packed = np.zeros(self.packed_floats, np.float32)
        if bias is not None:
            packed[: self.out_channels] = bias
        at, channel = self.bias_floats, 0
        for group in self.groups:
            count = sum(real for panel in group for _, real in panel)
            filters = self.filtering.transform_filters(weight[channel : channel + count]).astype(np.float32)
            ends = np.cumsum([width_of(panel) for panel in group])
            filters = np.pad(filters, ((0, 0), (0, 0), (0, ends[-1] - count)))
            for first in range(0, self.in_channels, self.blocking.depth):
                panels = np.split(filters[:, first : first + self.blocking.depth], ends[:-1], axis=2)
                part = np.concatenate([each.reshape(len(each), -1) for each in panels], axis=1)
                packed[at : at + part.size] = part.ravel()
                at += part.size
            channel += count
        return packed
