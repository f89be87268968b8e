"""Kernels whose result can be computed a band of rows at a time, and what each row of it reads."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from engine.compiler.kernels.convolution.bundles import rank_bundle_tiles
from engine.compiler.kernels.convolution.conv import Conv
from engine.compiler.kernels.convolution.depthwise import Depthwise
from engine.compiler.kernels.convolution.depthwise_tile import choose_tile as choose_depthwise_tile
from engine.compiler.kernels.convolution.dots import DotConv, rank_dot_tiles
from engine.compiler.kernels.convolution.grouped import GroupedConv
from engine.compiler.kernels.convolution.tiles import ConvTile, choose_tile
from engine.compiler.kernels.expr import cost
from engine.compiler.kernels.kernel import Kernel, Strides
from engine.compiler.kernels.map import Map
from engine.compiler.kernels.pooling.pool import Pool

NOWHERE: Final = Strides(0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Banded:
    """A kernel that may compute some rows of its result.

    Args:
        make: the same kernel for so many rows of one image.
        batch, rows: of the result.
        bytes: of all of it.
        result: the number of the argument where it lies.
        reads: of the one whose rows are under those of the result.
        target, source: strides of the two.
        moves: by how many floats every argument moves with an image and with a row of the result.
        stride, extent: rows of the operand from one row of the result to the next, and read by one.
        padding: rows before the operand's first, where the kernel leaves them out by itself.
        weights: bytes that each band reads again.
        finishing: instructions of the epilogue, an element.
        is_whole: a chunk of the kernel is a band, and it wants to know which.
    """

    make: Callable[[int], Kernel]
    batch: int
    rows: int
    bytes: int
    result: int
    target: Strides
    moves: tuple[tuple[int, int], ...]
    reads: int = 0
    source: Strides = NOWHERE
    stride: int = 1
    extent: int = 1
    padding: int = 0
    weights: int = 0
    finishing: int = 0
    is_whole: bool = False

    def under(self, rows: int) -> int:
        """Rows of the operand under some of the result's."""
        return (rows - 1) * self.stride + self.extent


def banded(kernel: Kernel) -> Banded | None:
    """A kernel as one that computes bands, if it can."""
    if kernel.precision == "double":  # bands are counted in float32
        return None
    if isinstance(kernel, Conv | Depthwise) and kernel.depth is not None:  # planes of volumes are no rows
        return None
    if isinstance(kernel, Conv):
        return _conv(kernel)
    if type(kernel) is Depthwise:
        return _depthwise(kernel)
    if type(kernel) is Pool:
        return _pool(kernel)
    return None


def banded_map(kernel: Map, image: Strides, batch: int) -> Banded | None:
    """A map whose result is images of these strides, likewise."""
    size, step = kernel.sizes[0], kernel.target[0]
    rows, rest = divmod(size * step, image.h) if image.h else (0, 1)
    if batch != 1 or rest or rows < 1 or size % rows or step < max(kernel.target):
        return None
    of_row = size // rows
    return Banded(
        make=lambda band: replace(kernel, sizes=(band * of_row, *kernel.sizes[1:])),
        batch=1,
        rows=rows,
        bytes=4 * math.prod(kernel.sizes),
        result=0,
        target=image,
        moves=tuple((0, each[0] * of_row) for each in (kernel.target, *kernel.operands)),
    )


def _conv(kernel: Conv) -> Banded | None:
    size = _unflattened(kernel) if kernel.rows == 1 and kernel.columns > 1 else (kernel.batch, kernel.rows, 0)
    if size is None:
        return None
    batch, rows, columns = size
    pixels = kernel.batch * kernel.rows * kernel.columns

    def make(band: int) -> Kernel:
        height, width = (1, band * columns) if columns else (band, kernel.columns)
        return replace(kernel, batch=1, rows=height, columns=width, tile=_tile_for(kernel, height, width))

    return Banded(
        make=make,
        batch=batch,
        rows=rows,
        bytes=4 * pixels * kernel.groups * kernel.out_channels,
        result=2,
        source=kernel.source,
        target=kernel.target,
        moves=_of_convolution(kernel.source, kernel.stride[0], kernel.target, kernel.epilogue.operands),
        stride=kernel.stride[0],
        extent=(kernel.kernel[0] - 1) * kernel.dilation[0] + 1,
        weights=4 * kernel.groups * len(kernel.panels) * kernel.panel_floats,
        finishing=cost(kernel.epilogue.tree),
    )


def _tile_for(kernel: Conv, rows: int, columns: int) -> ConvTile:
    """The tile that is best for so many pixels, with the weights as they are packed."""
    if isinstance(kernel, GroupedConv):
        across, gap = kernel.stride[1], kernel.dilation[1]
        return rank_bundle_tiles(kernel.host, rows, columns, kernel.kernel, across, gap, kernel.in_channels)[0]
    if isinstance(kernel, DotConv):
        return rank_dot_tiles(kernel.host, rows, columns, kernel.dots)[0]
    sizes = (kernel.tile.vectors,)
    return choose_tile(kernel.host, rows, columns, kernel.out_channels, kernel.taps, sizes, may_vary=True)


def _unflattened(kernel: Conv) -> tuple[int, int, int] | None:
    """Images, rows and columns of pixels that the kernel counts as one row; None if they lie otherwise."""
    pixels, target = kernel.columns, kernel.target
    if kernel.batch != 1 or not target.w or target.h <= target.w or target.h % target.w:
        return None
    columns = target.h // target.w
    rows = target.n // target.h if target.n else pixels // columns
    if not rows or pixels % (rows * columns):
        return None
    batch = pixels // (rows * columns)
    for each in (kernel.source, target, *kernel.epilogue.operands):
        if each.h != columns * each.w or (batch > 1 and each.n != rows * each.h):
            return None
    return batch, rows, columns


def _depthwise(kernel: Depthwise) -> Banded:
    def make(band: int) -> Kernel:
        tile = choose_depthwise_tile(kernel.host, band, kernel.columns, kernel.kernel, kernel.stride, kernel.dilation)
        return replace(kernel, batch=1, rows=band, tile=tile)

    return Banded(
        make=make,
        batch=kernel.batch,
        rows=kernel.rows,
        bytes=4 * kernel.batch * kernel.rows * kernel.columns * kernel.channels,
        result=2,
        source=kernel.source,
        target=kernel.target,
        moves=_of_convolution(kernel.source, kernel.stride[0], kernel.target, kernel.epilogue.operands),
        stride=kernel.stride[0],
        extent=(kernel.kernel[0] - 1) * kernel.dilation[0] + 1,
        weights=4 * kernel.channels * (1 + kernel.taps),
        finishing=cost(kernel.epilogue.tree),
    )


def _of_convolution(
    source: Strides, stride: int, target: Strides, operands: Sequence[Strides]
) -> tuple[tuple[int, int], ...]:
    """How image, weights, target and operands of the epilogue move."""
    return (source.n, stride * source.h), (0, 0), *((each.n, each.h) for each in (target, *operands))


def _pool(kernel: Pool) -> Banded | None:
    axis = kernel.down
    if axis.is_adaptive or kernel.depth.size > 1 or kernel.depth.count > 1:
        return None
    return Banded(
        make=lambda band: replace(kernel, batch=1, band=band),
        batch=kernel.batch,
        rows=axis.count,
        bytes=4 * kernel.batch * axis.count * kernel.across.count * kernel.channels,
        result=1,
        source=kernel.source,
        target=kernel.target,
        moves=tuple((each.n, 0) for each in (kernel.source, kernel.target, *kernel.epilogue.operands)),
        stride=axis.stride,
        extent=axis.extent,
        padding=axis.padding,
        finishing=cost(kernel.epilogue.tree),
        is_whole=True,
    )
