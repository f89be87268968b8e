"""Geometry of attention: blocking of queries and keys, strides, and the memory a thread needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

from engine.compiler.codegen.host import Host
from engine.compiler.codegen.ir import Sizes
from engine.compiler.kernels.attention.mask_range import MaskRange
from engine.compiler.kernels.attention.rows import Mask, RowCode
from engine.compiler.kernels.channels import Panel, panels_of, width_of
from engine.compiler.kernels.convolution.tiles import choose_tile
from engine.compiler.kernels.functions import half
from engine.compiler.kernels.grid import Grid
from engine.compiler.kernels.kernel import Kernel, derived
from engine.compiler.kernels.products.arithmetic import ARITHMETIC, Words
from engine.compiler.kernels.products.matrix import Matrix
from engine.compiler.kernels.products.packing import Packing
from engine.ir.dims import hint, is_symbolic, smallest

# Share of the L2 cache for the keys and values of a block, and the most keys of a block.
BLOCK_SHARE = 3 / 8
MOST_KEYS = 512
# Number of keys a tile is chosen for where the number is dynamic.
TYPICAL_KEYS = 128
# Queries of a chunk that share a block of keys while it is cached, and the most bytes of sums on the stack.
WANTED_QUERIES = 96
SUM_BYTES = 128 * 1024
# The most bytes of keys a chunk packs for its own queries; larger keys are packed by a separate step.
KEY_BYTES = 64 * 1024
# Most queries of a chunk that packs keys and values as words.
PACKED_QUERIES = 384


@dataclass(frozen=True, kw_only=True)
class Layout(Kernel):
    """Geometry of attention: sizes, strides, blocking.

    Args:
        batch: sizes of the leading dimensions.
        queries, keys: rows of the query; rows of key and value.
        width, values: columns of query and key; columns of the value.
        query, key, value, target: their strides. The value is row-major, the key row-major or column-major.
        masks: applied to the scores in this order.
        scale: factor of the scores.
        is_causal: whether query l attends to the keys 0 to l only.
        is_zero: whether a query without any key gives zeros; otherwise NaN.
        rows: queries of a tile.
        vectors: vector registers of a panel of keys, and of a panel of values.
        is_padded: whether the key is column-major and padded to whole panels, so that all sizes can be dynamic.
        by_dots: whether the few queries of a decoder are multiplied with keys in rows, one key after the other. The
            number of keys can be dynamic, and no key is packed.
        dtype: of keys and values in memory: float32, or by dots also 16-bit floats.
        words: of the factors, a row of ``ARITHMETIC``; those of bfloat16 are rounded and packed by every chunk.
    """

    batch: tuple[int, ...]
    queries: int
    keys: int
    width: int
    values: int
    query: Matrix
    key: Matrix
    value: Matrix
    target: Matrix
    masks: tuple[Mask, ...] = ()
    scale: float
    is_causal: bool = False
    is_zero: bool = True
    rows: int
    vectors: tuple[int, int]
    is_padded: bool = False
    by_dots: bool = False
    dtype: str = "float32"
    words: Words = "float"

    def dynamic(self, sizes: Sizes) -> Self:
        if not self.has_dynamic_keys:
            return self
        queries = () if self.by_dots else ("queries",)
        dynamic = self.with_dynamic(sizes, "batch", *queries, "keys", "query", "key", "value", "target", "masks")
        lines = dynamic.key if self.by_dots else replace(dynamic.key, column=sizes.dynamic(self.key.column))
        counts = [tuple(map(sizes.dynamic_count, each)) for each in (self.grid.sizes, self.grid.block)]
        grid = Grid((counts[0][0], counts[0][1]), (counts[1][0], counts[1][1]))
        return derived(replace(dynamic, key=lines), grid=grid)

    @property
    def element_bytes(self) -> int | None:
        """Return the bytes of a number in keys and values; None for the kernel's float."""
        return half.SIZES.get(self.dtype)

    @property
    def has_dynamic_keys(self) -> bool:
        """Return whether the code is for any number of keys, in blocks of one size."""
        return self.is_padded or self.by_dots

    @property
    def stacked(self) -> int:
        """Return the product of the leading dimensions."""
        return math.prod(self.batch)

    @property
    def pairs(self) -> int:
        """Return the number of (query, key) pairs computed."""
        if not self.is_causal:
            return self.queries * self.keys
        within = min(self.queries, self.keys)
        return within * (within + 1) // 2 + (self.queries - within) * self.keys

    @property
    def flops(self) -> int:
        return 2 * self.stacked * self.pairs * (self.width + self.values)

    @cached_property
    def block(self) -> int:
        """Return the keys of a block, as many as fit the L2 cache."""
        floats = int(BLOCK_SHARE * self.host.memory.second_bytes) // (4 * (self.width + self.values))
        step = self.host.lanes * self.vectors[0]
        most = max(step, min(MOST_KEYS, floats) // step * step)
        if self.has_dynamic_keys:  # reserved memory must not depend on the dynamic number of keys
            return most
        if self.keys <= most:
            return self.keys
        blocks = -(-self.keys // most)
        return -(-self.keys // (blocks * step)) * step

    @property
    def value_panels(self) -> tuple[Panel, ...]:
        """Return the panels of the value's columns."""
        return panels_of(self.values, self.host.lanes, self.vectors[1])

    @property
    def value_width(self) -> int:
        """Return the floats of one query's weighted sum, padded to whole vectors."""
        return sum(map(width_of, self.value_panels))

    @property
    def has_blocks(self) -> bool:
        """Return whether there is more than one block of keys."""
        return self.by_dots or self.block < self.keys

    @property
    def most_tiles(self) -> int:
        """Return the most tiles of queries in a chunk."""
        wanted = PACKED_QUERIES if self.packs_values else WANTED_QUERIES
        most = max(1, wanted // self.rows)
        return max(1, min(most, SUM_BYTES // (4 * self.rows * self.value_width))) if self.has_blocks else most

    @property
    def is_too_wide(self) -> bool:
        """Return whether heads are so wide that two separate matrix products are faster.

        Where the sums of a chunk's queries do not fit, keys and values are read again for every few of them. Two
        products keep all scores in memory: they need scores that are smaller than the operands and have no mask.
        """
        if self.masks or self.is_causal or self.has_dynamic_keys or not self.has_blocks:
            return False
        tiles = min(-(-self.queries // self.rows), WANTED_QUERIES // self.rows)
        is_kept = self.queries * self.keys <= (self.queries + self.keys) * (self.width + self.values)
        return is_kept and self.most_tiles < tiles

    @cached_property
    def grid(self) -> Grid:
        """Return the grid of query tiles by leading dimensions, cut into chunks."""
        sizes = -(-self.queries // self.rows), self.stacked
        tiles, stacked = hint(sizes)
        blocks = -(-tiles // self.most_tiles)
        work = hint(self.flops) / (tiles * stacked)
        few = max(1, min(stacked, int(self.host.chunk_flops / (work * tiles))))
        # With a quarter of the most queries, packing takes a tenth of the time of their products.
        least = max(self.host.chunk_flops, work * PACKED_QUERIES / 2 / self.rows if self.packs_values else 0)
        grid = Grid(sizes, (-(-tiles // blocks), few)).cut(self.host.wanted_chunks, work, least)
        # A chunk's memory holds at most this many tiles, even if the dynamic size exceeds its hint.
        return replace(grid, block=(smallest(grid.block[0], self.most_tiles), grid.block[1]))

    @property
    def min_sizes(self) -> Sequence[tuple[int, int]]:
        return ((self.queries, self.rows),)

    @property
    def chunks(self) -> int:
        return self.grid.chunks

    @property
    def row_code(self) -> RowCode:
        """Return the generator of the row-wise softmax."""
        # A pitch of a power of two plus one cache line puts rows into different sets of the L1 cache.
        whole = -(-self.block // self.key_width) * self.key_width
        return RowCode(
            rows=self.rows,
            pitch=whole + self.host.memory.line_floats,
            masks=self.masks,
            is_causal=self.is_causal,
            has_blocks=self.has_blocks,
            is_zero=self.is_zero,
            scale=self.scale,
            words=self.words,
            host=self.host,
        )

    @property
    def key_width(self) -> int:
        """Return the keys of a full panel."""
        return self.host.lanes * self.vectors[0]

    @property
    def mask_range(self) -> MaskRange | None:
        """Return the generator of mask range pruning; None where masks cannot exclude keys."""
        if self.is_causal or not self.masks or self.by_dots or self.keys <= self.host.lanes:
            return None
        is_row_major = self.query.column == 1 and (self.value.column == 1 or self.values == 1)
        is_each_whole = all(mask.matrix.column == 1 for mask in self.masks)
        if not is_each_whole or not is_row_major or 1 not in (self.key.row, self.key.column):
            return None
        return MaskRange(
            rows=self.rows,
            keys=self.keys,
            width=self.width,
            values=self.values,
            query=self.query,
            key=self.key,
            value=self.value,
            masks=self.masks,
            scale=self.scale,
            lanes=self.host.lanes,
        )

    def packed_keys(self, keys: int) -> Packing:
        """Return how the keys of a block are packed into columns."""
        transposed = Matrix((), self.key.column, self.key.row)
        panels = panels_of(keys, self.host.lanes, self.vectors[0])
        return Packing(source=transposed, rows=self.width, panels=panels, host=self.host, words=self.words)

    def packed_values(self, keys: int) -> Packing:
        """Return how the values of a block are packed as words."""
        source = Matrix((), self.value.row, self.value.column)
        return Packing(source=source, rows=keys, panels=self.value_panels, host=self.host, words=self.words)

    @property
    def packs_keys(self) -> bool:
        """Return whether every chunk packs the key: it is row-major, or becomes words."""
        return self.packs_values or (not self.by_dots and self.keys > 1 and self.key.row != 1)

    @property
    def packs_values(self) -> bool:
        """Return whether the factors become words, so that every chunk packs the value, too."""
        return self.words != "float"

    @property
    def packs_once(self) -> bool:
        """Return whether chunks compute whole attentions with small keys, so that no key is packed twice."""
        is_whole = self.grid.block[0] == self.grid.sizes[0]
        return is_whole and 4 * self.packed_keys(self.block).floats <= KEY_BYTES


def choose_rows(
    host: Host, queries: int, keys: int, width: int, *, is_causal: bool = False, words: Words = "float"
) -> tuple[int, tuple[int, int]]:
    """Return the queries of a tile, and the vectors of a panel of keys and of values."""
    # Small causal tiles compute fewer scores that the mask discards.
    columns = min(hint(queries), host.lanes) if is_causal else queries
    host, terms = ARITHMETIC[words].tiling_host(host), -(-width // ARITHMETIC[words].numbers)
    tile = choose_tile(host, 1, columns, TYPICAL_KEYS if is_symbolic(keys) else keys, terms)
    return tile.columns, (tile.vectors, max(1, (host.registers - host.reserved_registers) // (tile.columns + 1)))
