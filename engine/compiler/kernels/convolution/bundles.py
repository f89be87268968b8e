"""Channel-group packing: several narrow groups of a convolution share one vector, where that is faster.

The lanes of a vector of output channels then multiply different input channels. A single group broadcasts one input
value to all lanes; packed groups load a vector of a pixel's channels and shuffle each lane's channel into place. The
shuffle serves all taps that read the pixel.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from engine.compiler.codegen.host import Host
from engine.compiler.kernels.channels import fitting_lanes, vectors_of
from engine.compiler.kernels.convolution.tiles import ConvTile, expected_sizes, rank_by_cost

# Largest number of products of a row of taps that is unrolled.
UNROLLED = 400
# Least share of time saved by packing: separate groups have smaller chunks.
LEAST_SAVED = 0.15
# Columns of the tile used for the comparison.
_USUAL = 8
# Fewest lanes of a vector.
_FEWEST = 4
# Latency of an FMA in cycles, on all supported processors.
_LATENCY = 4


@dataclass(frozen=True, slots=True)
class Bundle:
    """Groups of a convolution packed into vectors.

    Args:
        inputs, outputs: channels of one group.
        groups: of the convolution.
        lanes: vector width.
    """

    inputs: int
    outputs: int
    groups: int
    lanes: int

    @property
    def size(self) -> int:
        """Return the groups in a vector; 0 if none fits."""
        return min(self.groups, self.lanes // self.outputs, self.lanes // self.inputs)

    @property
    def vectors(self) -> tuple[tuple[int, int], ...]:
        """Return the vectors of the output as (lanes, channels in it); only the last may differ."""
        whole, rest = divmod(self.groups, self.size)
        counts = [self.size * self.outputs] * whole + [rest * self.outputs] * (rest > 0)
        return tuple((max(fitting_lanes(count, self.lanes), min(_FEWEST, self.lanes)), count) for count in counts)

    def source_of(self, lane: int, channel: int) -> int:
        """Return the input channel, among those of the vector's groups, that is ``channel`` of a lane's group."""
        return lane // self.outputs * self.inputs + channel


def pays(host: Host, bundle: Bundle, across: int) -> bool:
    """Return whether packed groups are faster than separate ones.

    Args:
        across: taps of a row of the filter.
    """
    if bundle.size < 2:
        return False
    alone = sum(lanes_cost(host, lanes) for lanes, _ in vectors_of(bundle.outputs, host.lanes))
    pixels = (_USUAL + across - 1) / _USUAL
    together = lanes_cost(host, bundle.vectors[0][0]) * (1 + pixels / across) / bundle.size
    return together < (1 - LEAST_SAVED) * alone


def lanes_cost(host: Host, lanes: int) -> float:
    """Return the cost of a vector product; cores that start one wide product a cycle start two narrow ones."""
    is_halved = host.products_in_flight < 1.5 * _LATENCY and host.lanes > 8
    return 0.5 if is_halved and 2 * lanes <= host.lanes else 1.0


def rank_bundle_tiles(
    host: Host,
    rows: int,
    columns: int,
    kernel: tuple[int, int],
    stride: int,
    dilation: int,
    inputs: int,
    count: int = 1,
) -> list[ConvTile]:
    """Return the cheapest pixel tiles, best first: recomputed pixels, shuffles, prologues and epilogues count.

    Args:
        kernel: taps (down, across), those of all planes counted as down.
        stride, dilation: across.
        inputs: channels of a group.
        count: number wanted; there may be fewer.
    """
    sizes = map(expected_sizes, (rows, columns))
    return list(_ranked(host, *sizes, kernel, stride, dilation, inputs)[:count])


def is_written_out(across: int, inputs: int) -> bool:
    """Return whether all taps of a row are unrolled."""
    return across * inputs * 4 <= UNROLLED


@lru_cache(maxsize=1024)
def _ranked(
    host: Host,
    rows: range,
    columns: range,
    kernel: tuple[int, int],
    stride: int,
    dilation: int,
    inputs: int,
) -> tuple[ConvTile, ...]:
    down, across = kernel
    written = across if is_written_out(across, inputs) else 1
    limit = max(1, min(host.most_rows(1), UNROLLED // (written * inputs)))

    def cost(tile: ConvTile) -> float:
        pixels = tile.rows * tile.columns
        places = len({t * stride + k * dilation for t in range(tile.columns) for k in range(written)})
        shuffled = tile.rows * places * (across // written)
        # Pixels stay in registers beside the sums; those that find no register are loaded again.
        live = pixels + tile.rows * places + written + inputs + 2
        spilled = max(0, live - host.registers) * (across // written)
        step = max(pixels * across + shuffled, host.products_in_flight * across) + 0.5 * across + spilled
        return down * (inputs * step + 0.5 * shuffled) + 60 + 2.5 * pixels

    return rank_by_cost(rows, columns, limit, cost)
