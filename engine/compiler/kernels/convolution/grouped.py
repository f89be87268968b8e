"""Direct convolution with narrow groups: one vector holds the output channels of several.

The lanes of such a vector multiply different input channels. A single group broadcasts one input value to all lanes;
packed groups load a vector of a pixel's channels and shuffle each lane's channel into place, once for all taps that
read the pixel. A cost model decides whether packing is faster. Tiles, weights and loops over the rows of taps are those
of ``conv``.

Arguments: image (first tap of the first pixel), packed weights, target, operands of the epilogue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import product

from engine.compiler.codegen.host import Host
from engine.compiler.codegen.ir import Function, Index, Module, Value, lanes_of, vector
from engine.compiler.kernels.channels import Panel, fitting_lanes, vectors_of
from engine.compiler.kernels.convolution.conv import Conv
from engine.compiler.kernels.convolution.conv_tile import TileWriter, emit_tile
from engine.compiler.kernels.convolution.tiles import ConvTile, cheapest_of, expected_sizes

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
class PackedGroups:
    """Groups of a convolution packed into vectors.

    Args:
        inputs, outputs: channels of one group; inputs are counted in words.
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


def is_faster(host: Host, packed: PackedGroups, across: int) -> bool:
    """Return whether packed groups are faster than separate ones.

    Args:
        across: taps of a row of the filter.
    """
    if packed.size < 2:
        return False
    alone = sum(vector_cost(host, lanes) for lanes, _ in vectors_of(packed.outputs, host.lanes))
    pixels = (_USUAL + across - 1) / _USUAL
    together = vector_cost(host, packed.vectors[0][0]) * (1 + pixels / across) / packed.size
    return together < (1 - LEAST_SAVED) * alone


def vector_cost(host: Host, lanes: int) -> float:
    """Return the cost of a vector product; cores that start one wide product a cycle start two narrow ones."""
    is_halved = host.products_in_flight < 1.5 * _LATENCY and host.lanes > 8
    return 0.5 if is_halved and 2 * lanes <= host.lanes else 1.0


def choose_grouped_tile(
    host: Host,
    rows: int,
    columns: int,
    kernel: tuple[int, int],
    stride: int,
    dilation: int,
    inputs: int,
) -> ConvTile:
    """Return the cheapest pixel tile: recomputed pixels, shuffles, prologues and epilogues count.

    Args:
        kernel: taps (down, across), those of all planes counted as down.
        stride, dilation: across.
        inputs: channels of a group.
    """
    sizes = map(expected_sizes, (rows, columns))
    return _cheapest(host, *sizes, kernel, stride, dilation, inputs)


def is_unrolled(across: int, inputs: int) -> bool:
    """Return whether all taps of a row are unrolled."""
    return across * inputs * 4 <= UNROLLED


@lru_cache(maxsize=1024)
def _cheapest(
    host: Host,
    rows: range,
    columns: range,
    kernel: tuple[int, int],
    stride: int,
    dilation: int,
    inputs: int,
) -> ConvTile:
    down, across = kernel
    written = across if is_unrolled(across, inputs) else 1
    limit = max(1, min(host.most_rows(1), UNROLLED // (written * inputs)))

    def cost(tile: ConvTile) -> float:
        pixels = tile.rows * tile.columns
        positions = len({t * stride + k * dilation for t in range(tile.columns) for k in range(written)})
        shuffled = tile.rows * positions * (across // written)
        # Pixels stay in registers with the sums; those that find no register are loaded again.
        live = pixels + tile.rows * positions + written + inputs + 2
        spilled = max(0, live - host.registers) * (across // written)
        step = max(pixels * across + shuffled, host.products_in_flight * across) + 0.5 * across + spilled
        return down * (inputs * step + 0.5 * shuffled) + 60 + 2.5 * pixels

    return cheapest_of(rows, columns, limit, cost)


@dataclass(frozen=True, kw_only=True)
class GroupedConv(Conv):
    """Convolution of static geometry with packed groups.

    For the inherited code it has one group of output channels, each summed over ``in_channels`` input channels.

    Args:
        outputs: output channels of a group.
    """

    kind = "grouped"
    outputs: int

    @cached_property
    def packed(self) -> PackedGroups:
        """Return the groups packed into a vector."""
        return PackedGroups(self.in_channels, self.outputs, self.out_channels // self.outputs, self.host.lanes)

    @cached_property
    def panels(self) -> tuple[Panel, ...]:
        """Return one panel a vector."""
        return tuple((each,) for each in self.packed.vectors)

    def first_input(self, f: Function, group: Index, panel: Index) -> Index:
        return f.mul(panel, self.packed.size * self.in_channels)

    @property
    def taps_in_run(self) -> int:
        return self.kernel[1] if is_unrolled(self.kernel[1], self.in_channels) else 1

    def write_tile(self, module: Module, panel: Panel) -> str:
        tile = self.tile_of(panel)
        writer = partial(_Writer, packed=self.packed, pitch=self.source.w, readers=self._readers)
        return emit_tile(module, tile, writer)

    @property
    def _readers(self) -> dict[int, list[tuple[int, int]]]:
        """Return the (output pixel, tap) pairs that read each input pixel of a row, from left to right."""
        readers: dict[int, list[tuple[int, int]]] = {}
        for column, tap in product(range(self.tile.columns), range(self.taps_in_run)):
            readers.setdefault(column * self.stride[1] + tap * self.dilation[1], []).append((column, tap))
        return dict(sorted(readers.items()))


@dataclass(frozen=True, slots=True)
class _Writer(TileWriter):
    """Emitter of a tile of packed groups.

    Args:
        pitch: distance of neighbouring input pixels.
        readers: (output pixel, tap) pairs that read each input pixel of a row.
    """

    packed: PackedGroups
    pitch: int
    readers: Mapping[int, Sequence[tuple[int, int]]]

    def _run(self, image: Value, weights: Value, ahead: Value | None, totals: list[Value]) -> list[Value]:
        """Emit one or all taps of a row: every pixel is loaded once, and each of its channels shuffled once."""
        f, code, sums = self.f, self.code, list(totals)
        self._fetch_weights(ahead, code.run)
        positions = [*product(range(code.rows), self.readers)]
        pixels = [
            self._channels(f.at(f.at(image, row * code.steps[0]), position * self.pitch)) for row, position in positions
        ]
        inputs, (lanes, _) = self.packed.inputs, code.panel[0]
        for channel in range(inputs):
            terms = range(channel, code.run, inputs)
            of_taps = [f.load(vector(lanes), f.at(weights, term * code.width)) for term in terms]
            for (row, position), each in zip(positions, pixels, strict=True):
                value = self._spread(each, channel)
                for column, tap in self.readers[position]:
                    k = row * code.columns + column
                    sums[k] = code.multiply_add(f, value, of_taps[tap], sums[k])
        return sums

    def _channels(self, address: Value) -> Value:
        """Load the channels of a pixel that the vector's groups read."""
        packed, (_, real) = self.packed, self.code.panel[0]
        count = real // packed.outputs * packed.inputs
        return self.f.load_lanes(vector(fitting_lanes(count, packed.lanes)), address, count)

    def _spread(self, pixel: Value, channel: int) -> Value:
        """Broadcast a channel of each group to the lanes of the group."""
        packed, (lanes, real) = self.packed, self.code.panel[0]
        if lanes_of(pixel.type) == 1:
            return self.f.splat(pixel, lanes)
        positions = [packed.source_of(lane, channel) if lane < real else None for lane in range(lanes)]
        return self.f.shuffle(pixel, Value("poison", pixel.type), positions)
