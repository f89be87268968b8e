"""Direct convolution to few output channels, vectorised along the sums instead of the output channels.

Input channels, and contiguous taps of a row, fill the lanes. Each lane accumulates its share of a result; after all
taps the lanes are reduced. Chunks and the loops over tiles and rows of taps are those of ``conv``.

Arguments: image (first tap of the first pixel), packed weights, target, operands of the epilogue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from itertools import product

import numpy as np

from engine.compiler.codegen.host import Host
from engine.compiler.codegen.ir import Function, Module, Value, constant, lanes_of, vector
from engine.compiler.kernels.channels import Panel, load_panel, panels_of, unroll_factor, vectors_of
from engine.compiler.kernels.convolution.conv import Conv
from engine.compiler.kernels.convolution.conv_tile import FEW, TileWriter, emit_tile
from engine.compiler.kernels.convolution.grouped import vector_cost
from engine.compiler.kernels.convolution.tiles import ConvTile, cheapest_of, expected_sizes
from engine.compiler.kernels.folding import fold_lanes, total
from engine.tensor import Array

# Least share of products saved: other algorithms save some, too.
LEAST_SAVED = 0.5
# Most sums of a tile: more only add code.
MOST_SUMS = 24
# Cost of reducing the lanes of a sum, in products.
FOLDING = 6


@dataclass(frozen=True, slots=True)
class Dots:
    """Sums for the result at a pixel.

    Args:
        outputs: channels of the result.
        runs: number of K loops.
        run: contiguous input values of each.
        lanes: vector width.
    """

    outputs: int
    runs: int
    run: int
    lanes: int

    @property
    def vectors(self) -> int:
        """Return the vectors of a run."""
        return -(-self.run // self.lanes)


@dataclass(frozen=True, kw_only=True)
class DotConv(Conv):
    """Convolution of static geometry whose groups have one panel of one vector each."""

    kind = "dots"

    @cached_property
    def panels(self) -> tuple[Panel, ...]:
        return panels_of(self.out_channels, self.host.lanes, 1)

    @property
    def dots(self) -> Dots:
        """Return the sums for a pixel."""
        run = self.taps_in_run * self.in_channels
        return Dots(self.out_channels, self.taps // run, run, self.host.lanes)

    @property
    def panel_floats(self) -> int:
        """Return the packed floats: the bias, padded to a vector so that weights are aligned, then the weights."""
        return self.host.lanes * (1 + self.dots.runs * self.dots.vectors * self.out_channels)

    @property
    def fetching(self) -> int:
        return 0

    @property
    def streams(self) -> int:
        return 1

    @property
    def packing(self) -> object:
        return self.kind, self.groups, self.panels, self.dots

    def pack(self, weight: Array, bias: Array | None) -> Array:
        dots, lanes, groups = self.dots, self.host.lanes, self.groups
        packed = np.zeros((groups, 1 + dots.runs * dots.vectors * dots.outputs, lanes), weight.dtype)
        if bias is not None:
            packed[:, 0, : dots.outputs] = bias.reshape(groups, -1)
        runs = np.zeros((groups, dots.outputs, dots.runs, dots.vectors * lanes), weight.dtype)
        runs[..., : dots.run] = weight.transpose(0, 2, 3, 1).reshape(groups, dots.outputs, dots.runs, dots.run)
        packed[:, 1:] = runs.reshape(groups, dots.outputs, -1, lanes).swapaxes(1, 2).reshape(groups, -1, lanes)
        return packed

    def write_tile(self, module: Module, panel: Panel) -> str:
        tile, lanes = self.tile_of(panel), self.host.lanes
        of_run = self.dots.vectors * self.out_channels * lanes

        def between(values: int) -> int:
            """Return the packed weights of this many input values, in units of the panel's width."""
            return values // tile.run * of_run // tile.width

        tile = replace(
            tile,
            loops=tuple((count, distance, between(values)) for count, distance, values in tile.loops),
            planes=None if tile.planes is None else (tile.planes[0], between(tile.planes[1])),
            skipped=lanes // tile.width - 1,
        )
        return emit_tile(module, tile, partial(_Writer, lanes=lanes))


@dataclass(frozen=True, slots=True)
class _Writer(TileWriter):
    """Emitter of a tile.

    Args:
        lanes: vector width of the sums.
    """

    lanes: int

    @property
    def _outputs(self) -> int:
        ((_, outputs),) = self.code.panel
        return outputs

    def _begun(self, weights: Value) -> list[Value]:
        return [constant(0.0, vector(self.lanes))] * (self.code.rows * self.code.columns * self._outputs)

    def _ended(self, totals: Sequence[Value], weights: Value) -> list[Value]:
        """Reduce the lanes of every sum and add the bias."""
        f, outputs = self.f, self._outputs
        (bias,) = load_panel(f, weights, self.code.panel, is_padded=True)
        pixels = (totals[k : k + outputs] for k in range(0, len(totals), outputs))
        return [f.fadd(bias, _side_by_side(f, pixel, lanes_of(bias.type))) for pixel in pixels]

    def _run(self, image: Value, weights: Value, ahead: Value | None, totals: list[Value]) -> list[Value]:
        f, (whole, rest) = self.f, divmod(self.code.run, self.lanes)
        unroll = whole if whole <= FEW else unroll_factor(len(totals))
        looped = whole // unroll * unroll if unroll else 0
        if looped > unroll:
            with f.loop(0, looped, unroll, carry=totals) as loop:
                at = f.at(image, f.mul(loop.index, self.lanes))
                row, carried = f.at(weights, f.mul(loop.index, self._outputs * self.lanes)), loop.carried
                for k in range(unroll):
                    carried = self._add(at, row, k, self.lanes, carried)
                loop.carry(carried)
            totals = loop.results
        else:
            looped = 0
        for k in range(looped, whole):
            totals = self._add(image, weights, k, self.lanes, totals)
        return self._add(image, weights, whole, rest, totals) if rest else totals

    def _add(self, image: Value, weights: Value, number: int, count: int, totals: Sequence[Value]) -> list[Value]:
        """Add the ``count`` products of a vector of the run to the sums."""
        f, code, outputs, type_ = self.f, self.code, self._outputs, vector(self.lanes)
        rows = [f.load(type_, f.at(weights, (number * outputs + k) * self.lanes)) for k in range(outputs)]
        result = []
        for pixel, (row, column) in enumerate(product(range(code.rows), range(code.columns))):
            at = f.at(f.at(f.at(image, row * code.steps[0]), column * code.steps[1]), number * self.lanes)
            values = f.load_lanes(type_, at, count)
            sums = totals[pixel * outputs : (pixel + 1) * outputs]
            result += [f.fma(values, each, before) for each, before in zip(rows, sums, strict=True)]
        return result


def _side_by_side(f: Function, sums: Sequence[Value], lanes: int) -> Value:
    """Reduce some vectors, each to one lane of the result."""
    if lanes == 1:
        return fold_lanes(f, sums[0], total)
    parts = [*sums, *[constant(0.0, sums[0].type)] * (lanes - len(sums))]
    while lanes_of(parts[0].type) > lanes:
        parts = [_halved(f, each) for each in parts]
    while len(parts) > 1:
        parts = [_merged(f, *parts[k : k + 2]) for k in range(0, len(parts), 2)]
    return parts[0]


def _halved(f: Function, value: Value) -> Value:
    """Add the upper half of a vector to the lower one."""
    half, nothing = lanes_of(value.type) // 2, Value("poison", value.type)
    return f.fadd(*(f.shuffle(value, nothing, range(first, first + half)) for first in (0, half)))


def _merged(f: Function, a: Value, b: Value) -> Value:
    """Add neighbouring lanes of two vectors; results of the second follow those of the first."""
    lanes = lanes_of(a.type)
    return f.fadd(*(f.shuffle(a, b, range(first, 2 * lanes, 2)) for first in (0, 1)))


def is_faster(host: Host, dots: Dots) -> bool:
    """Return whether this is faster than a vector of output channels for every product.

    It never is if the channels fill half a vector: that saves less than half of the products.
    """
    alone = dots.runs * dots.run * sum(vector_cost(host, lanes) for lanes, _ in vectors_of(dots.outputs, host.lanes))
    return dots.outputs * (dots.runs * dots.vectors + FOLDING) < (1 - LEAST_SAVED) * alone


def choose_dot_tile(host: Host, rows: int, columns: int, dots: Dots) -> ConvTile:
    """Return the cheapest pixel tile: recomputed pixels, loads, prologues and epilogues count."""
    return _cheapest(host, expected_sizes(rows), expected_sizes(columns), dots)


@lru_cache(maxsize=1024)
def _cheapest(host: Host, rows: range, columns: range, dots: Dots) -> ConvTile:
    # A vector of weights for every output channel stays in registers, and one vector of pixels.
    limit = max(1, min(host.registers - dots.outputs - 1, MOST_SUMS) // dots.outputs)

    def cost(tile: ConvTile) -> float:
        pixels = tile.rows * tile.columns
        sums, loads = pixels * dots.outputs, (pixels + dots.outputs) / host.repeats_a_product
        return dots.runs * dots.vectors * max(sums, host.products_in_flight, loads) + 60 + FOLDING * sums

    return cheapest_of(rows, columns, limit, cost)
