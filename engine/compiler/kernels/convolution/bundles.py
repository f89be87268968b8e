"""Groups of channels that are too narrow for a vector, several of them in one: how many, and whether that pays.

A vector of output channels then belongs to several groups, and its lanes multiply different input channels. Where a
group on its own repeats a number in all lanes, a bundle takes a vector of pixels' channels and brings each lane the one
of its group: a shuffle, which serves all taps that meet the pixel.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from engine.compiler.codegen.host import Host
from engine.compiler.kernels.channels import fitting_lanes, vectors_of
from engine.compiler.kernels.convolution.tiles import ConvTile, rank_by_cost
from engine.compiler.kernels.expected_sizes import expected_sizes

# Products of a row of taps that are written out.
UNROLLED = 400
# What a bundle should save, as a share: groups on their own are blocked more finely.
LEAST_SAVED = 0.15
# Columns of a tile by which the two are compared.
_USUAL = 8
# Lanes of a vector that holds even one channel.
_FEWEST = 4
# Cycles from the beginning of a product to its end, on any processor there is code for.
_LATENCY = 4


@dataclass(frozen=True, slots=True)
class Bundle:
    """Channels of a convolution's groups, and what of them fits a vector.

    Args:
        inputs, outputs: channels of one group.
        groups: of the convolution.
        lanes: of a vector.
    """

    inputs: int
    outputs: int
    groups: int
    lanes: int

    @property
    def size(self) -> int:
        """Groups in a vector; 0 where none fits."""
        return min(self.groups, self.lanes // self.outputs, self.lanes // self.inputs)

    @property
    def vectors(self) -> tuple[tuple[int, int], ...]:
        """Of the output, (lanes, channels in it); only the last may differ from the others."""
        whole, rest = divmod(self.groups, self.size)
        counts = [self.size * self.outputs] * whole + [rest * self.outputs] * (rest > 0)
        return tuple((max(fitting_lanes(count, self.lanes), min(_FEWEST, self.lanes)), count) for count in counts)

    def source_of(self, lane: int, channel: int) -> int:
        """The input channel, of those of the vector's groups, that a lane multiplies as ``channel`` of its group."""
        return lane // self.outputs * self.inputs + channel


def pays(host: Host, bundle: Bundle, across: int) -> bool:
    """Whether groups are computed sooner in bundles than each on its own.

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
    """What a product of vectors of so many lanes takes: processors that begin one wide one a cycle begin two narrow."""
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
    """The tiles of pixels that cost least, the best first: pixels computed twice, shuffles, beginnings and ends.

    Args:
        kernel: taps (down, across), those of all planes counted as down.
        stride, dilation: across.
        inputs: channels of a group.
        count: how many are wanted; there may be fewer.
    """
    sizes = map(expected_sizes, (rows, columns))
    return list(_ranked(host, *sizes, kernel, stride, dilation, inputs)[:count])


def is_written_out(across: int, inputs: int) -> bool:
    """Whether all taps of a row are written one after the other, for some pixels at least."""
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
        # Pixels are kept beside the sums, for one channel after the other; those that find no register are read again.
        live = pixels + tile.rows * places + written + inputs + 2
        spilled = max(0, live - host.registers) * (across // written)
        step = max(pixels * across + shuffled, host.products_in_flight * across) + 0.5 * across + spilled
        return down * (inputs * step + 0.5 * shuffled) + 60 + 2.5 * pixels

    return rank_by_cost(rows, columns, limit, cost)
