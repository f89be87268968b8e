"""Which tile of pixels and channels a convolution or a product is computed by: what each costs, and the cheapest.

Costs are cycles by a model of a core: products, loads, the latency of sums, the beginning and the end of a tile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from engine.compiler.codegen.host import Host
from engine.compiler.kernels.alike import MOST_RANKED, alike, mean_count, tried
from engine.compiler.kernels.channels import few, vectors_of

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


def wide_tiles(columns: int, width: int) -> int:
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
        may_vary: whether the last tiles of a row may have a column less; not where images come in many sizes.
        is_open: whether images come in many sizes: then a few tiles are tried, with one size of panels, and sizes near
            each other get the same.
        count: how many are wanted, the best first; there may be fewer.
    """
    if is_open:
        return list(_ranked_open(host, alike(rows), alike(columns), out_channels, taps, tuple(sizes))[:count])
    vectors_of_all = len(vectors_of(out_channels, host.lanes))
    arrival = _arrival(host, vectors_of_all, taps)
    if arrival and rows * columns == 1 and host.memory.late_cost > 0:
        sizes = sorted(sizes, reverse=True)  # wide panels read 8 % faster there (Intel Xeon), narrow ones 4 % on Zen 5
    found: list[tuple[float, ConvTile]] = []
    for vectors in sizes:
        limit = host.most_rows(vectors)
        if limit < 1 or vectors > max(vectors_of_all, 1):
            continue
        for tile_rows in range(1, min(rows, limit) + 1):
            most = limit // tile_rows
            for tile_columns in range(1, min(columns, most) + 1):
                tile = ConvTile(tile_rows, tile_columns, vectors)
                across, wide = -(-columns // tile_columns), wide_tiles(columns, tile_columns)
                is_only = tile_rows >= rows and tile_columns >= columns
                one = _cycles_of_all(host, tile, vectors_of_all, taps, arrival if is_only else 0.0)
                row = across * one
                if may_vary and 0 < wide < across:
                    less = replace(tile, columns=tile_columns - 1)
                    varied = wide * one + (across - wide) * _cycles_of_all(host, less, vectors_of_all, taps)
                    saved = row - varied
                    if saved > LEAST_SAVED * row and -(-rows // tile_rows) * saved > LEAST_CYCLES:
                        row, tile = varied, replace(tile, varies=True)
                found.append((-(-rows // tile_rows) * row, tile))
    return _cheapest(found)[:count]


def rank_by_cost(
    rows: range, columns: range, limit: int, cost: Callable[[ConvTile], float], *, is_open: bool
) -> tuple[ConvTile, ...]:
    """Tiles of one vector and so many pixels at most, by what they cost on average over images of such sizes.

    Args:
        cost: of one tile.
    """
    tiles = [
        ConvTile(height, width, 1)
        for height in tried(limit, rows, is_open=is_open)
        for width in tried(limit // height, columns, is_open=is_open)
    ]

    def of_all(tile: ConvTile) -> float:
        return mean_count(rows, tile.rows) * mean_count(columns, tile.columns) * cost(tile)

    return tuple(sorted(tiles, key=of_all)[:MOST_RANKED]) or (ConvTile(1, 1, 1),)


def _cheapest(found: list[tuple[float, ConvTile]]) -> list[ConvTile]:
    """Tiles by what they cost; the least there can be where there are none."""
    return [tile for _, tile in sorted(found, key=lambda each: each[0])] or [ConvTile(1, 1, 1)]


@lru_cache(maxsize=4096)
def _ranked_open(
    host: Host, rows: range, columns: range, out_channels: int, taps: int, sizes: tuple[int, ...]
) -> tuple[ConvTile, ...]:
    """The tiles that waste least on average over such images; first that of large ones, where it costs little more."""
    usual = _usual(host, rows.start > 1, out_channels, taps, sizes)
    costs = _costs(host, rows, columns, out_channels, taps, usual.vectors)
    ranked = _cheapest([(cost, tile) for tile, cost in costs.items()])
    if usual in costs and costs[usual] <= NEAR * costs[ranked[0]]:
        ranked = [usual, *(each for each in ranked if each != usual)]
    return tuple(ranked[:MOST_RANKED])


def _costs(
    host: Host, rows: range, columns: range, out_channels: int, taps: int, vectors: int
) -> dict[ConvTile, float]:
    """What each of a few tiles costs, on average over images of such sizes."""
    count, limit = len(vectors_of(out_channels, host.lanes)), host.most_rows(vectors)
    if limit < 1 or vectors > max(count, 1):
        return {}
    arrival = _arrival(host, count, taps)
    found = {}
    for height in few(4, min(rows.start, limit)):
        for width in few(limit // height, columns.start):
            tile, is_only = ConvTile(height, width, vectors), height >= rows[-1] and width >= columns[-1]
            one = _cycles_of_all(host, tile, count, taps, arrival if is_only else 0.0)
            found[tile] = mean_count(rows, height) * mean_count(columns, width) * one
    return found


@lru_cache(maxsize=1024)
def _usual(host: Host, has_rows: bool, out_channels: int, taps: int, sizes: tuple[int, ...]) -> ConvTile:
    """The tile of a large image, where images come in many sizes; its panels are those of all."""
    vectors = choose_tile(host, 1, TYPICAL, out_channels, taps, sizes).vectors
    size = range(TYPICAL, TYPICAL + 1)
    costs = _costs(host, size if has_rows else range(1, 2), size, out_channels, taps, vectors)
    return min(costs, key=lambda tile: costs[tile], default=ConvTile(1, 1, vectors))


def _cycles_of_all(host: Host, tile: ConvTile, count: int, taps: int, arrival: float = 0.0) -> float:
    """What so many vectors of channels cost at the pixels of a tile; no less than their weights take to come."""
    whole, rest = divmod(count, tile.vectors)
    cycles = whole * _cycles(host, tile, tile.vectors, taps) + (_cycles(host, tile, rest, taps) if rest else 0)
    return max(cycles, count * taps * arrival)


def _arrival(host: Host, count: int, taps: int) -> float:
    """What a vector of weights takes to come where each is read once, and all of them are more than stay near.

    A linear layer of a single row is such: panels wider than that asks for gain nothing, and read memory 4 % slower on
    Zen 5.
    """
    vector_bytes = 4 * host.lanes
    is_far = count * taps * vector_bytes > host.memory.second_bytes
    return vector_bytes * host.memory.spilled_cost if is_far else 0.0


def _cycles(host: Host, tile: ConvTile, vectors: int, taps: int) -> float:
    """What a tile costs: products, or the latency of adding to too few sums, or loads; and its beginning and end."""
    pixels = tile.rows * tile.columns
    loads = 1.1 * (pixels + vectors) / host.repeats_a_product
    step = max(pixels * vectors, host.products_in_flight, loads) + 0.35 * vectors + 0.25
    return taps * step + 60 + 2.5 * pixels * vectors
