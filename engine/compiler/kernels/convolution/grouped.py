"""Direct convolution with narrow groups: one vector holds the output channels of several.

Tiles, weights and loops over the rows of taps are those of ``conv``; see ``bundles`` for the packing of groups. Every
pixel of a row is loaded once, and each of its channels is shuffled to the lanes of its group once.

Arguments: image (first tap of the first pixel), packed weights, target, operands of the epilogue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product

from engine.compiler.codegen.ir import Function, Index, Module, Value, lanes_of, vector
from engine.compiler.kernels.channels import Panel, fitting_lanes
from engine.compiler.kernels.convolution.bundles import Bundle, is_written_out
from engine.compiler.kernels.convolution.conv import Conv
from engine.compiler.kernels.convolution.conv_tile import TileWriter, emit_tile


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
    def bundle(self) -> Bundle:
        """Return the groups packed into a vector."""
        return Bundle(self.in_channels, self.outputs, self.out_channels // self.outputs, self.host.lanes)

    @cached_property
    def panels(self) -> tuple[Panel, ...]:
        """Return one panel a vector."""
        return tuple((each,) for each in self.bundle.vectors)

    def first_input(self, f: Function, group: Index, panel: Index) -> Index:
        return f.mul(panel, self.bundle.size * self.in_channels)

    @property
    def taps_in_run(self) -> int:
        return self.kernel[1] if is_written_out(self.kernel[1], self.in_channels) else 1

    def write_tile(self, module: Module, panel: Panel, columns: int) -> str:
        tile = replace(self.tile_of(panel, columns), is_far=False, is_source_far=False)
        writer = partial(_Writer, bundle=self.bundle, pitch=self.source.w, places=self._places(columns))
        return emit_tile(module, tile, writer)

    def _places(self, columns: int) -> dict[int, list[tuple[int, int]]]:
        """Return the (output pixel, tap) pairs that read each input pixel of a row, from left to right."""
        met: dict[int, list[tuple[int, int]]] = {}
        for column, tap in product(range(columns), range(self.taps_in_run)):
            met.setdefault(column * self.stride[1] + tap * self.dilation[1], []).append((column, tap))
        return dict(sorted(met.items()))


@dataclass(frozen=True, slots=True)
class _Writer(TileWriter):
    """Emitter of a tile of packed groups.

    Args:
        pitch: distance of neighbouring input pixels.
        places: (output pixel, tap) pairs that read each input pixel of a row.
    """

    bundle: Bundle
    pitch: int
    places: Mapping[int, Sequence[tuple[int, int]]]

    def _run(self, image: Value, weights: Value, ahead: Value | None, totals: list[Value]) -> list[Value]:
        """Emit one or all taps of a row: every pixel is loaded once, and each of its channels shuffled once."""
        f, code, sums = self.f, self.code, list(totals)
        self._fetch_weights(ahead, code.run)
        met = [*product(range(code.rows), self.places)]
        pixels = [self._channels(f.at(f.at(image, row * code.steps[0]), place * self.pitch)) for row, place in met]
        inputs, (lanes, _) = self.bundle.inputs, code.panel[0]
        for channel in range(inputs):
            terms = range(channel, code.run, inputs)
            of_taps = [f.load(vector(lanes), f.at(weights, term * code.width)) for term in terms]
            for (row, place), each in zip(met, pixels, strict=True):
                value = self._spread(each, channel)
                for column, tap in self.places[place]:
                    k = row * code.columns + column
                    sums[k] = f.fma(value, of_taps[tap], sums[k])
        return sums

    def _channels(self, address: Value) -> Value:
        """Load the channels of a pixel that the vector's groups read."""
        bundle, (_, real) = self.bundle, self.code.panel[0]
        count = real // bundle.outputs * bundle.inputs
        return self.f.load_lanes(vector(fitting_lanes(count, bundle.lanes)), address, count)

    def _spread(self, pixel: Value, channel: int) -> Value:
        """Broadcast a channel of each group to the lanes of the group."""
        bundle, (lanes, real) = self.bundle, self.code.panel[0]
        if lanes_of(pixel.type) == 1:
            return self.f.splat(pixel, lanes)
        places = [bundle.source_of(lane, channel) if lane < real else None for lane in range(lanes)]
        return self.f.shuffle(pixel, Value("poison", pixel.type), places)
