"""Geometry of a recurrence: memory layout, blocking, and packing of the weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from engine.compiler.codegen.ir import Sizes
from engine.compiler.kernels.channels import Panel, panels_of, width_of
from engine.compiler.kernels.kernel import Kernel, derived
from engine.compiler.kernels.recurrent.blocking import Blocking, Hoisting
from engine.compiler.kernels.recurrent.cells import GATES, CellKind
from engine.compiler.kernels.recurrent.rounding import Rounding
from engine.ir.dims import hint
from engine.tensor import Array


def gate_rows(panels: Sequence[Panel], gates: int, units: int) -> list[Array]:
    """Return for each panel the row of a (gates * units, ...) matrix for each lane, gate by gate; -1 for padding."""
    found, first = [], 0
    for panel in panels:
        inside: list[int] = []
        for lanes, real in panel:
            inside += [*range(first, first + real), *[-1] * (lanes - real)]
            first += real
        unit = np.array(inside)
        found.append(np.concatenate([np.where(unit < 0, -1, unit + gate * units) for gate in range(gates)]))
    return found


def spread(matrix: Array, rows: Array) -> Array:
    """Return rows of a matrix, or elements of a vector; zeros for the row -1."""
    result = np.zeros((len(rows), *matrix.shape[1:]), matrix.dtype)
    result[rows >= 0] = matrix[rows[rows >= 0]]
    return result


def packed_panels(matrix: Array, rows: Sequence[Array], heads: Sequence[Array] | None = None) -> Array:
    """Pack a (rows, taps) matrix as consecutive panels: an optional head, then tap by tap.

    The last panel is padded to the size of the others.
    """
    pieces = []
    for k, each in enumerate(rows):
        panel = spread(matrix, each).T.reshape(-1)
        pieces.append(panel if heads is None else np.concatenate([heads[k], panel]))
    size = len(pieces[0])
    return np.concatenate([np.pad(piece, (0, size - len(piece))) for piece in pieces])


def widths(panels: Sequence[Panel]) -> int:
    """Return the floats of all panels together."""
    return sum(map(width_of, panels))


@dataclass(frozen=True, slots=True)
class Steps:
    """Strides of a sequence in elements: of steps for each direction, and of rows of the batch."""

    steps: tuple[int, ...]
    rows: int

    def dynamic(self, sizes: Sizes) -> Steps:
        """Return the strides with dynamic sizes."""
        return Steps(tuple(map(sizes.dynamic, self.steps)), sizes.dynamic(self.rows))


@dataclass(frozen=True, slots=True)
class States:
    """Strides of initial or final states in elements: of directions, and of rows of the batch."""

    directions: int
    rows: int


@dataclass(frozen=True, slots=True)
class CellWeights:
    """Weights of one direction, gates in the order of the cell.

    Args:
        hidden: (gates * units, taps); integers if the state is rounded to integers.
        scales: of those integers, (gates * units,).
        bias: of a GRU's last gate, (units,).
        projection: (projected, units).
        input, input_bias: (gates * units, width) and (gates * units,), if the kernel computes the input projection.
    """

    hidden: Array
    scales: Array | None = None
    bias: Array | None = None
    projection: Array | None = None
    input: Array | None = None
    input_bias: Array | None = None


@dataclass(frozen=True, kw_only=True)
class Layout(Kernel):
    """Recurrence of one layer.

    Args:
        steps, batch: of the sequence.
        units: of a gate.
        projected: width of h after its projection, or 0.
        source: strides of the input projection, panel by panel, gate by gate; of the input itself with ``hoisted``.
        sequence: strides of h at every step; None if it is not needed.
        initial, final: strides of h, and of c for an LSTM; None if not needed.
        hoisted: blocking of the input projection if the kernel computes it, as a single chunk.
        rounding: of h before it is multiplied; None for floats.
        waits: wait for the steps of the layer below, which runs in parallel.
        publishes: publish the number of finished steps for the layer above.
        groups: parts of a step, of one direction, that threads share; 0 if a chunk computes complete steps.
    """

    cell: CellKind
    steps: int
    batch: int
    units: int
    source: Steps
    sequence: Steps | None
    initial: tuple[States, ...]
    final: tuple[States | None, ...]
    blocking: Blocking
    projected: int = 0
    hoisted: Hoisting | None = None
    rounding: Rounding | None = None
    waits: bool = False
    publishes: bool = False
    groups: int = 0

    def dynamic(self, sizes: Sizes) -> Self:
        dynamic = self.with_dynamic(sizes, "steps", "source", "sequence")
        return derived(dynamic, block=sizes.dynamic(self.block))

    @property
    def min_sizes(self) -> Sequence[tuple[int, int]]:
        return () if self.hoisted is None else ((self.steps, self.hoisted.steps),)

    @property
    def directions(self) -> int:
        """Number of directions: one or two."""
        return len(self.source.steps)

    @property
    def addresses(self) -> int:
        """Number of pointer arguments."""
        finals = sum(each is not None for each in self.final)
        ends = self.directions * (1 + (self.sequence is not None)) + len(self.initial) + finals
        return ends + 2 + (self.hoisted is not None) + self.waits + self.publishes + bool(self.groups)

    @property
    def gates(self) -> int:
        """Gates of a unit."""
        return GATES[self.cell]

    @property
    def taps(self) -> int:
        """Columns of h: terms of a gate's sum."""
        return self.projected or self.units

    @property
    def terms(self) -> int:
        """Products summed for a gate: columns of h, or words of its rounded columns."""
        return self.taps if self.rounding is None else self.rounding.count

    @cached_property
    def panels(self) -> tuple[Panel, ...]:
        """Vectors of every panel of units."""
        return panels_of(self.units, self.host.lanes, self.blocking.vectors)

    @cached_property
    def projection_panels(self) -> tuple[Panel, ...]:
        """Vectors of every panel of a projected state."""
        size = self.gates * self.blocking.vectors
        return panels_of(self.projected, self.host.lanes, size) if self.projected else ()

    @property
    def panel_floats(self) -> int:
        """Packed floats of a panel: for a GRU the bias of its last gate, of integers sums and scales, then weights."""
        sums = 0 if self.rounding is None or not self.rounding.is_integer else 2
        return width_of(self.panels[0]) * (self.gates * (self.terms + sums) + (self.cell == "gru"))

    @property
    def projection_floats(self) -> int:
        """Packed floats of a panel of the projection."""
        return width_of(self.projection_panels[0]) * self.units if self.projected else 0

    @property
    def direction_floats(self) -> int:
        """Packed floats of a direction."""
        recurrent = len(self.panels) * self.panel_floats + len(self.projection_panels) * self.projection_floats
        return recurrent + (0 if self.hoisted is None else self.gate_floats * (1 + self.hoisted.width))

    @property
    def gate_floats(self) -> int:
        """Floats of the input projection for a step and row: all gates with padding."""
        return self.gates * widths(self.panels)

    @property
    def block_floats(self) -> int:
        """Floats of the input projections of a block of steps."""
        return 0 if self.hoisted is None else self.hoisted.steps * self.gate_floats

    @property
    def pitch(self) -> int:
        """Floats of a row of scratch memory: whole cache lines."""
        line, lanes = self.host.memory.line_floats, self.host.lanes
        size = -(-max(self.units, self.taps) // lanes) * lanes
        return -(-size // line) * line

    @property
    def parts(self) -> int:
        """Parts of scratch memory for all directions and rows: h twice, c of an LSTM, h before its projection."""
        return 2 + (self.cell == "lstm") + bool(self.projected)

    @property
    def state_floats(self) -> int:
        """Floats of these parts."""
        return self.parts * self.directions * self.batch * self.pitch

    @property
    def scratch_floats(self) -> int:
        """Floats of scratch memory: the states, and rounded h of each direction or group."""
        copies = 0 if self.rounding is None else max(self.groups, self.directions) * self.rounding.pitch
        return self.state_floats + copies * self.batch

    @cached_property
    def tiles(self) -> tuple[int, ...]:
        """Rows of the batch in each tile; the last may have fewer."""
        full, rest = divmod(self.batch, self.blocking.rows)
        return (*[self.blocking.rows] * full, *([rest] if rest else []))

    @cached_property
    def block(self) -> int:
        """Tiles of a chunk: about ``chunk_flops`` of work, and at most ``wanted_chunks`` chunks."""
        if self.groups or (self.rounding is not None and self.rounding.of_all):
            return len(self.tiles)
        tile_flops = hint(self.flops) / (self.directions * len(self.tiles))
        least = max(1, min(len(self.tiles), round(self.host.chunk_flops / max(1.0, tile_flops))))
        return max(least, -(-self.directions * len(self.tiles) // self.host.wanted_chunks))

    @property
    def blocks(self) -> int:
        """Chunks of a direction."""
        return -(-len(self.tiles) // self.block)

    @property
    def chunks(self) -> int:
        return self.groups or self.directions * self.blocks

    @property
    def flops(self) -> int:
        width = self.taps + (0 if self.hoisted is None else self.hoisted.width)
        weights = self.gates * self.units * width + self.projected * self.units
        return 2 * self.steps * self.batch * self.directions * weights

    @property
    def packing(self) -> object:
        """Key of everything that the order of packed weights depends on."""
        sizes = self.units, self.projected, self.host.lanes
        return self.cell, self.panels, self.projection_panels, self.hoisted, self.rounding, *sizes

    def pack(self, weights: Sequence[CellWeights]) -> Array:
        """Return the weights of every direction in the order the code reads them."""
        packed = []
        for each in weights:
            rows = gate_rows(self.panels, self.gates, self.units)
            hidden, heads = each.hidden, [np.zeros(0, np.float32)] * len(rows)
            if self.cell == "gru":
                bias = np.zeros(self.units, np.float32) if each.bias is None else each.bias
                heads = [spread(bias, own) for own in gate_rows(self.panels, 1, self.units)]
            if each.scales is not None:
                columns = np.stack([hidden.sum(1, dtype=np.int32).view(np.float32), each.scales], 1)
                heads = [np.append(head, spread(columns, own).T) for head, own in zip(heads, rows, strict=True)]
            if self.rounding is not None:
                hidden = self.rounding.arithmetic.words_of(hidden)
            packed.append(packed_panels(hidden, rows, heads))
            if each.projection is not None:
                rows = gate_rows(self.projection_panels, 1, self.projected)
                packed.append(packed_panels(each.projection, rows))
            if self.hoisted is not None and each.input is not None and each.input_bias is not None:
                order = np.concatenate(gate_rows(self.panels, self.gates, self.units))
                packed.append(spread(each.input_bias, order))
                together = self.hoisted.vectors * self.host.lanes
                packed.append(packed_panels(each.input, np.split(order, len(order) // together)))
        return np.concatenate(packed)
