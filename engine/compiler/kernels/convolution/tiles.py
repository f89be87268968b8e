"""Choice of the register tile of a convolution or matrix product.

The cost model counts cycles: products, loads, latency of accumulation, prologue and epilogue of a tile.
A symbolic size stands for a range of sizes around its hint, over which costs are averaged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from engine.compiler.codegen.host import Host
from engine.compiler.kernels.channels import vectors_of
from engine.ir.dims import hint, is_symbolic

# Number of sizes averaged over.
SAMPLES = 16


def expected_sizes(size: int) -> range:
    """Return the sizes to choose a tile for; a symbolic size is expected from half to one and a half times its hint.

    A program with a tile of seven columns is correct for images of seven columns or more.
    """
    size_now = hint(size)
    if not is_symbolic(size):
        return range(size_now, size_now + 1)
    least = -(-size_now // 2)
    return range(least, size_now + least + 1)


def mean_count(sizes: range, width: int) -> float:
    """Return the mean number of tiles of this width that cover these sizes."""
    some = sizes[:: -(-len(sizes) // SAMPLES)]
    return sum(-(-size // width) for size in some) / len(some)


# Candidate panel widths in vectors; the first of equals wins.
PANEL_SIZES = (2, 3, 4, 1, 6, 8)


@dataclass(frozen=True, slots=True)
class ConvTile:
    """Register tile: output pixels by vectors of output channels."""

    rows: int
    columns: int
    vectors: int


def choose_tile(
    host: Host,
    rows: int,
    columns: int,
    out_channels: int,
    taps: int = 256,
    sizes: Sequence[int] = PANEL_SIZES,
) -> ConvTile:
    """Return the cheapest tile: recomputed pixels, empty lanes and excess loads count.

    Args:
        rows, columns: of the image; for symbolic sizes the average over expected sizes is minimised.
        taps: products summed for one output value; with few of them, prologue and epilogue matter.
        sizes: panel widths to try, in vectors.
    """
    images = expected_sizes(rows), expected_sizes(columns)
    return _cheapest(host, *images, *hint((out_channels, taps)), tuple(sizes))


@lru_cache(maxsize=4096)
def _cheapest(
    host: Host, rows: range, columns: range, out_channels: int, taps: int, sizes: tuple[int, ...]
) -> ConvTile:
    vectors_of_all = len(vectors_of(out_channels, host.lanes))
    arrival = _arrival(host, vectors_of_all, taps)
    if arrival and rows[-1] * columns[-1] == 1 and host.memory.late_cost > 0:
        # Wide panels read 8 % faster there (Intel Xeon), narrow ones 4 % on Zen 5.
        sizes = tuple(sorted(sizes, reverse=True))
    found = [(math.inf, ConvTile(1, 1, 1))]
    for vectors in sizes:
        limit = host.most_rows(vectors)
        if limit < 1 or vectors > max(vectors_of_all, 1):
            continue
        for tile_rows in range(1, min(rows.start, limit) + 1):
            down = mean_count(rows, tile_rows)
            for tile_columns in range(1, min(columns.start, limit // tile_rows) + 1):
                tile = ConvTile(tile_rows, tile_columns, vectors)
                is_only = tile_rows >= rows[-1] and tile_columns >= columns[-1]
                one = _cycles_of_all(host, tile, vectors_of_all, taps, arrival if is_only else 0.0)
                found.append((down * mean_count(columns, tile_columns) * one, tile))
    return min(found, key=lambda each: each[0])[1]


def cheapest_of(rows: range, columns: range, limit: int, cost: Callable[[ConvTile], float]) -> ConvTile:
    """Return the tile of one vector and at most ``limit`` pixels that is cheapest for images of these sizes.

    Args:
        cost: of one tile.
    """
    tiles = [
        ConvTile(height, width, 1)
        for height in range(1, min(limit, rows.start) + 1)
        for width in range(1, min(limit // height, columns.start) + 1)
    ]

    def of_all(tile: ConvTile) -> float:
        return mean_count(rows, tile.rows) * mean_count(columns, tile.columns) * cost(tile)

    return min(tiles, key=of_all, default=ConvTile(1, 1, 1))


def _cycles_of_all(host: Host, tile: ConvTile, count: int, taps: int, arrival: float = 0.0) -> float:
    """Return the cost of ``count`` vectors of channels at a tile's pixels, at least the time to load their weights."""
    whole, rest = divmod(count, tile.vectors)
    cycles = whole * _cycles(host, tile, tile.vectors, taps) + (_cycles(host, tile, rest, taps) if rest else 0)
    return max(cycles, count * taps * arrival)


def _arrival(host: Host, count: int, taps: int) -> float:
    """Return the time to load a vector of weights if each is used once and all of them exceed the L2 cache.

    A linear layer of a single row is such a case: wider panels than this asks for gain nothing, and read memory 4 %
    slower on Zen 5.
    """
    vector_bytes = 4 * host.lanes
    is_far = count * taps * vector_bytes > host.memory.second_bytes
    return vector_bytes * host.memory.spilled_cost if is_far else 0.0


def _cycles(host: Host, tile: ConvTile, vectors: int, taps: int) -> float:
    """Return the cost of a tile: the largest of products, accumulation latency and loads; prologue; epilogue."""
    pixels = tile.rows * tile.columns
    loads = 1.1 * (pixels + vectors) / host.repeats_a_product
    step = max(pixels * vectors, host.products_in_flight, loads) + 0.35 * vectors + 0.25
    return taps * step + 60 + 2.5 * pixels * vectors
