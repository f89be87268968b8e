"""Register tile of a depthwise convolution, chosen by a cost model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from engine.compiler.codegen.host import Host
from engine.compiler.kernels.convolution.tiles import expected_sizes, mean_count

# Largest number of unrolled products of a tile; beyond it taps are loops.
UNROLLED = 400
ROWS, COLUMNS = 4, 16


@dataclass(frozen=True, slots=True)
class DepthwiseTile:
    """Output pixels computed at once."""

    rows: int
    columns: int


def live_totals(
    tile: DepthwiseTile, kernel: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int]
) -> int:
    """Return the sums live at once: those of the output rows that read one input row."""
    return tile.columns * min(tile.rows, -(-((kernel[0] - 1) * dilation[0] + 1) // stride[0]))


def is_resident(
    host: Host, tile: DepthwiseTile, kernel: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int]
) -> bool:
    """Return whether all weights fit in registers together with the sums."""
    return live_totals(tile, kernel, stride, dilation) + kernel[0] * kernel[1] + 2 <= host.registers


def choose_tile(
    host: Host,
    rows: int,
    columns: int,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
) -> DepthwiseTile:
    """Return the cheapest tile: recomputed pixels, repeated loads and short dependency chains count."""
    return _cheapest(host, expected_sizes(rows), expected_sizes(columns), kernel, stride, dilation)


@lru_cache(maxsize=1024)
def _cheapest(
    host: Host,
    rows: range,
    columns: range,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
) -> DepthwiseTile:
    heights, widths = (range(1, min(most, size.start) + 1) for most, size in ((ROWS, rows), (COLUMNS, columns)))
    shapes = [DepthwiseTile(r, c) for r in heights for c in widths]
    fitting = [tile for tile in shapes if tile.rows * tile.columns * kernel[0] * kernel[1] <= UNROLLED]
    if not fitting:
        return DepthwiseTile(1, min(columns.start, host.registers // 2 - 2))

    def cost(tile: DepthwiseTile) -> float:
        count = mean_count(rows, tile.rows) * mean_count(columns, tile.columns)
        return count * _cycles(host, tile, kernel, stride, dilation)

    return min(fitting, key=cost)


def _cycles(
    host: Host, tile: DepthwiseTile, kernel: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int]
) -> float:
    """Return the cost of a tile, in multiply-adds."""
    products = tile.rows * tile.columns * kernel[0] * kernel[1]
    lines = {row * stride[0] + ky * dilation[0] for row in range(tile.rows) for ky in range(kernel[0])}
    positions = {t * stride[1] + kx * dilation[1] for t in range(tile.columns) for kx in range(kernel[1])}
    loads = len(lines) * len(positions)
    live = live_totals(tile, kernel, stride, dilation)
    if not is_resident(host, tile, kernel, stride, dilation):
        loads += tile.rows * kernel[0] * kernel[1]
        live += kernel[1] * live // tile.columns
    spilled = max(0, live + 2 - host.registers)
    short = max(0, 6 - live_totals(tile, kernel, stride, dilation))
    return (
        max(products, loads + tile.rows * tile.columns) * (1 + 0.06 * short) + 0.2 * loads + 2 * spilled * kernel[0] + 2
    )
