"""Geometry of a Winograd convolution: tiles, groups of channels, memory, packed weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Self

import numpy as np

from engine.compiler.codegen.ir import Sizes, is_at_most
from engine.compiler.kernels.channels import Panel, panels_of, vectors_of, width_of
from engine.compiler.kernels.kernel import Convolution, Strides
from engine.compiler.kernels.winograd.blocking import Blocking
from engine.compiler.kernels.winograd.stages import Scratch, spread
from engine.compiler.kernels.winograd.transforms import Filtering
from engine.errors import CompileError
from engine.tensor import Array


@dataclass(frozen=True, kw_only=True)
class Layout(Convolution):
    """Convolution of one group: 3×3 of stride 1 or 2, or any of stride 1 by rows; dilated ones have stride 1.

    With dilation d it is d² convolutions of images of every d-th pixel, or d of every d-th column by rows.

    Args:
        rows, columns: multiples of the dilation, unless transformed by rows.
        source: strides of the padded image.
        filtering: filter, stride and output tile; see ``choose``.
        blocking: chunks and register tile; see ``choose_blocking``.
        depth: windows along the planes of volumes, with at least two planes of taps or inside the volume; ``batch``
            then counts output planes, and strides along it are those of planes.
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
        super().__post_init__()
        if self.filtering.is_row:
            if self.is_uneven and self.columns // self.dilation < self.filtering.tile[1]:
                raise CompileError(
                    "the image has fewer columns than a tile", found=self.columns, expected=self.filtering.tile[1]
                )
        elif self.rows % self.dilation or self.columns % self.dilation:
            raise CompileError(
                "the image size is not a multiple of the dilation",
                found=(self.rows, self.columns),
                expected=self.dilation,
            )
        if self.rounds > 1 and self.blocking.tiles % self.blocking.at_once:
            raise CompileError("tiles overlap although input channels are summed in parts", found=self.blocking)

    @property
    def dilations(self) -> tuple[int, int]:
        """Return the distance of the pixels of an image that is convolved separately, down and across."""
        return (1 if self.filtering.is_row else self.dilation), self.dilation

    @property
    def phases(self) -> int:
        """Return the number of such images in one."""
        return math.prod(self.dilations)

    @property
    def is_uneven(self) -> bool:
        """Return whether some of them may have one more column."""
        return self.dilation > 1 and not is_at_most(self.columns % self.dilation, 0)

    @property
    def size(self) -> tuple[int, int]:
        """Return rows and columns of an output image; with dilation, of the largest image of every d-th pixel."""
        return self.rows // self.dilations[0], -(-self.columns // self.dilation)

    @property
    def extent(self) -> tuple[int, int]:
        """Return rows and columns of such an image, padded, that a part of the filter reads."""
        rows, columns = (
            self.filtering.stride * (size - 1) + line.taps
            for size, line in zip(self.size, self.filtering.lines, strict=True)
        )
        return rows, columns

    @cached_property
    def tiling(self) -> tuple[int, int]:
        """Return the tiles down and across an image."""
        rows, columns = (-(-size // tile) for size, tile in zip(self.size, self.filtering.tile, strict=True))
        return rows, columns

    def dynamic(self, sizes: Sizes) -> Self:
        return super().dynamic(sizes).with_dynamic(sizes, "blocking")

    def within(self, strides: Strides) -> Strides:
        """Return the strides between pixels of such an image."""
        down, across = self.dilations
        return Strides(strides.n, strides.h * down, strides.w * across, strides.c)

    @property
    def overlap(self) -> tuple[int, int | None]:
        """Return rows and columns the last tile shares with the one before, down and across; None where they differ."""
        counts = zip(self.tiling, self.filtering.tile, self.size, strict=True)
        down, across = (0 if size < tile else count * tile - size for count, tile, size in counts)
        return down, None if self.is_uneven else across

    @property
    def tiles(self) -> int:
        """Return the tiles of all images."""
        return self.batch * self.phases * self.tiling[0] * self.tiling[1]

    @cached_property
    def groups(self) -> list[tuple[Panel, ...]]:
        """Return the panels of the output channels by group; the last group may be smaller."""
        panels = panels_of(self.out_channels, self.host.lanes, self.blocking.vectors)
        return [panels[k : k + self.blocking.panels] for k in range(0, len(panels), self.blocking.panels)]

    @cached_property
    def widths(self) -> tuple[int, int]:
        """Return the floats of the output channels of the first and the last group, empty lanes included."""
        first, last = (sum(width_of(panel) for panel in group) for group in (self.groups[0], self.groups[-1]))
        return first, last

    @property
    def width(self) -> int:
        """Return the floats of all output channels."""
        return self.widths[0] * (len(self.groups) - 1) + self.widths[1]

    @property
    def bias_floats(self) -> int:
        """Return the offset of the packed weights behind the bias."""
        line_floats = self.host.memory.line_floats
        return line_floats * -(-self.width // line_floats)

    @property
    def packed_floats(self) -> int:
        """Return the floats of bias and weights."""
        return self.bias_floats + self.parts * self.part_floats(self.width)

    def part_floats(self, width: int) -> int:
        """Return the floats of a part of the filters, for output channels that take ``width`` floats."""
        return self.filtering.weights * self.in_channels * width

    @property
    def depths(self) -> int:
        """Return the blocks of input channels."""
        return -(-self.in_channels // self.blocking.depth)

    @property
    def planes(self) -> int:
        """Return the planes of taps."""
        return 1 if self.depth is None else self.depth.kernel

    @property
    def parts(self) -> int:
        """Return the parts of the filters in all planes of taps."""
        return self.planes * self.filtering.rounds

    @property
    def rounds(self) -> int:
        """Return the number of partial sums: parts of the filters times blocks of input channels."""
        return self.parts * self.depths

    @cached_property
    def scratch(self) -> Scratch:
        """Return the memory of a chunk."""
        vectors = vectors_of(min(self.blocking.depth, self.in_channels), self.host.lanes)
        line_floats, room = self.host.memory.line_floats, self.blocking.room
        pitches = [spread(floats, line_floats) for floats in (width_of(vectors), self.widths[0])]
        steps = [self.blocking.tiles * each if room is None else spread(room * each, line_floats) for each in pitches]
        return Scratch(self.filtering, *pitches, *steps)

    @property
    def blocks(self) -> int:
        """Return the blocks of tiles; the last is shifted back to be whole."""
        return -(-self.tiles // self.blocking.tiles)

    @property
    def chunks(self) -> int:
        return len(self.groups) * self.blocks

    @property
    def flops(self) -> int:
        """Return the operations of the direct convolution this replaces, so that rates compare."""
        return (
            2
            * self.batch
            * self.rows
            * self.columns
            * self.out_channels
            * self.in_channels
            * self.planes
            * math.prod(self.filtering.kernel)
        )

    @property
    def packing(self) -> object:
        of_channels = self.groups, self.in_channels, self.blocking.depth, self.bias_floats
        return "winograd", self.filtering, self.planes, *of_channels

    def pack(self, weight: Array, bias: Array | None) -> Array:
        """Return weights (O, I, KH, KW), transformed in float64, and bias (O,) in reading order: (floats,) float32.

        For a volume, the rows of all planes of taps follow one another: (O, I, KD * KH, KW).

        Order: bias; by group, part, block of input channels, filter value, panel: (input channel, output channel).
        """
        packed = np.zeros(self.packed_floats, np.float32)
        if bias is not None:
            packed[: self.out_channels] = bias
        at, channel, weights = self.bias_floats, 0, self.filtering.weights
        for group in self.groups:
            width = sum(map(width_of, group))
            size = self.parts * self.part_floats(width)
            begin = 0
            for panel in group:
                count, lanes = sum(real for _, real in panel), width_of(panel)
                # A panel at a time, so that temporary arrays are small enough to reuse memory.
                planes = np.split(weight[channel : channel + count], self.planes, axis=2)
                filters = [part for plane in planes for part in self.filtering.transform_filters(plane)]
                for part, first in product(range(self.parts), range(0, self.in_channels, self.blocking.depth)):
                    depth = min(self.blocking.depth, self.in_channels - first)
                    block = at + part * self.part_floats(width) + weights * first * width
                    lines = packed[block : block + weights * depth * width].reshape(weights, depth * width)
                    panel_lines = lines[:, depth * begin : depth * (begin + lanes)].reshape(weights, depth, lanes)
                    panel_lines[:, :, :count] = filters[part][:, first : first + depth]
                channel, begin = channel + count, begin + lanes
            at += size
        return packed
