"""A recurrence: one layer of an LSTM, GRU or plain recurrent network over all its steps, in one or both directions.

What the input gives is there before: a product for all steps at once. A chunk is some rows of the batch in one
direction. Its states lie in scratch memory, h twice, for what is read while the next one is written; the recurrent
weights are packed so that a step reads them once, one after the other.

Arguments: for each direction the input's part of the gates and, if it is wanted, the sequence, both from the first step
of that direction on; weights; initial h, and c of an LSTM; scratch; where wanted, final h and c.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from engine.compiler.codegen.ir import Index, Module, Value, as_value
from engine.compiler.kernels.channels import Panel, cases, panels_of, width_of
from engine.compiler.kernels.kernel import Kernel, block_of, start
from engine.compiler.kernels.recurrent.block import BlockCode, copy_row, emit_block
from engine.compiler.kernels.recurrent.blocking import Blocking
from engine.compiler.kernels.recurrent.cells import GATES, CellKind
from engine.compiler.kernels.recurrent.packing import gate_rows, packed_panels, spread
from engine.tensor import Array


@dataclass(frozen=True, slots=True)
class Steps:
    """Where a sequence lies: distance of steps in each direction, and of rows of the batch, in elements."""

    steps: tuple[int, ...]
    rows: int


@dataclass(frozen=True, slots=True)
class States:
    """Where initial or final states lie: distance of directions, and of rows of the batch, in elements."""

    directions: int
    rows: int


@dataclass(frozen=True, slots=True)
class CellWeights:
    """Weights of one direction: (gates * units, taps), the bias of a GRU's last gate (units,), (projected, units)."""

    hidden: Array
    bias: Array | None = None
    projection: Array | None = None


@dataclass(frozen=True, kw_only=True)
class Recurrence(Kernel):
    """One layer's recurrence.

    Args:
        steps, batch: of the sequence.
        units: of a gate.
        projected: width of h where it is projected, else 0.
        source: of the input's part of the gates, panel by panel, gate by gate within each.
        sequence: of h at every step, None where nobody wants it.
        initial, final: of h, and c of an LSTM; None for what nobody wants.
    """

    kind = "recurrent"
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

    @property
    def directions(self) -> int:
        """One or two."""
        return len(self.source.steps)

    @property
    def gates(self) -> int:
        """Of a unit."""
        return GATES[self.cell]

    @property
    def taps(self) -> int:
        """Width of h."""
        return self.projected or self.units

    @cached_property
    def panels(self) -> tuple[Panel, ...]:
        """The vectors of every panel of units."""
        return panels_of(self.units, self.host.lanes, self.blocking.vectors)

    @cached_property
    def projection_panels(self) -> tuple[Panel, ...]:
        """The vectors of every panel of a projected state."""
        size = self.gates * self.blocking.vectors
        return panels_of(self.projected, self.host.lanes, size) if self.projected else ()

    @property
    def panel_floats(self) -> int:
        """Packed floats of a panel: for a GRU the bias of its last gate, then weights."""
        return width_of(self.panels[0]) * (self.gates * self.taps + (self.cell == "gru"))

    @property
    def projection_floats(self) -> int:
        """Packed floats of a panel of the projection."""
        return width_of(self.projection_panels[0]) * self.units if self.projected else 0

    @property
    def direction_floats(self) -> int:
        """Packed floats of a direction."""
        return len(self.panels) * self.panel_floats + len(self.projection_panels) * self.projection_floats

    @property
    def pitch(self) -> int:
        """Floats of a row of scratch memory: cache lines of its own."""
        line, lanes = self.host.memory.line_floats, self.host.lanes
        size = -(-max(self.units, self.taps) // lanes) * lanes
        return -(-size // line) * line

    @property
    def scratch_shape(self) -> tuple[int, int, int, int]:
        """h twice, c of an LSTM, h before it is projected; each for all directions and rows."""
        return 2 + (self.cell == "lstm") + bool(self.projected), self.directions, self.batch, self.pitch

    @cached_property
    def tiles(self) -> tuple[int, ...]:
        """Rows of the batch that are multiplied together; the last may be fewer."""
        full, rest = divmod(self.batch, self.blocking.rows)
        return (*[self.blocking.rows] * full, *([rest] if rest else []))

    @property
    def block(self) -> int:
        """Tiles of a chunk: many enough for the weights to be read, and no more chunks than serve many threads."""
        tile_flops = self.flops / (self.directions * len(self.tiles))
        least = max(1, min(len(self.tiles), round(self.host.chunk_flops / max(1.0, tile_flops))))
        return max(least, -(-self.directions * len(self.tiles) // self.host.wanted_chunks))

    @property
    def blocks(self) -> int:
        """Chunks of a direction."""
        return -(-len(self.tiles) // self.block)

    @property
    def chunks(self) -> int:
        return self.directions * self.blocks

    @property
    def flops(self) -> int:
        weights = self.gates * self.units * self.taps + self.projected * self.units
        return 2 * self.steps * self.batch * self.directions * weights

    def pack(self, weights: Sequence[CellWeights]) -> Array:
        """The weights of every direction in the order the code streams them."""
        packed = []
        for each in weights:
            heads = None
            if self.cell == "gru":
                bias = np.zeros(self.units, np.float32) if each.bias is None else each.bias
                heads = [spread(bias, rows) for rows in gate_rows(self.panels, 1, self.units)]
            packed.append(packed_panels(each.hidden, gate_rows(self.panels, self.gates, self.units), heads))
            if each.projection is not None:
                rows = gate_rows(self.projection_panels, 1, self.projected)
                packed.append(packed_panels(each.projection, rows))
        return np.concatenate(packed)

    def emit(self, module: Module) -> None:
        functions = {
            (rows, panel): emit_block(module, self._code_of(rows, panel, self.cell))
            for rows in dict.fromkeys(self.tiles)
            for panel in dict.fromkeys(self.panels)
        }
        projections = {
            (rows, panel): emit_block(module, self._code_of(rows, panel, None))
            for rows in dict.fromkeys(self.tiles)
            for panel in dict.fromkeys(self.projection_panels)
        }
        _Writer(self, module, functions, projections).emit()

    def _code_of(self, rows: int, panel: Panel, cell: CellKind | None) -> BlockCode:
        is_last = cell is None or not self.projected
        return BlockCode(
            name=f"{self.name}_{cell or 'projection'}_{rows}_{'_'.join(str(real) for _, real in panel)}",
            cell=cell,
            rows=rows,
            panel=panel,
            taps=self.units if cell is None else self.taps,
            splits=self.blocking.splits,
            source=self.source.rows,
            target=0 if self.sequence is None else self.sequence.rows,
            pitch=self.pitch,
            writes=is_last and self.sequence is not None,
        )


Functions = dict[tuple[int, Panel], str]


class _Writer:
    """A recurrence being written."""

    def __init__(self, kernel: Recurrence, module: Module, functions: Functions, projections: Functions) -> None:
        self.kernel, self.functions, self.projections = kernel, functions, projections
        has_sequence = kernel.sequence is not None
        finals = [each for each in kernel.final if each is not None]
        count = kernel.directions * (1 + has_sequence) + 1 + len(kernel.initial) + 1 + len(finals)
        self.direction: Index
        self.f, pointers, chunk = start(module, kernel, count)
        self.direction, block = self.f.divmod(chunk, kernel.blocks) if kernel.directions > 1 else (0, chunk)
        self.first_tile, self.end_tile = block_of(self.f, block, kernel.block, len(kernel.tiles))
        given = iter(pointers)
        ways = [[next(given) for _ in range(1 + has_sequence)] for _ in range(kernel.directions)]
        self.source, *sequence = (self._of_direction(each) for each in zip(*ways, strict=True))
        self.sequence = sequence[0] if sequence else None
        self.weights = self.f.at(next(given), self.f.mul(self.direction, kernel.direction_floats))
        self.initial = [next(given) for _ in kernel.initial]
        self.scratch = next(given)
        self.final = [None if each is None else next(given) for each in kernel.final]

    def emit(self) -> None:
        """States in, steps, states out."""
        f, kernel = self.f, self.kernel
        state_of = [0, 2][: len(kernel.initial)]
        for pointer, states, part in zip(self.initial, kernel.initial, state_of, strict=True):
            self._copy(pointer, states, part, self._width(part), into=True)
        steps = self._of_direction([as_value(each) for each in kernel.source.steps])
        further = None if kernel.sequence is None else self._of_direction([*map(as_value, kernel.sequence.steps)])
        ways = [self.source] if self.sequence is None else [self.source, self.sequence]
        with f.loop(0, kernel.steps, carry=[*self._states(), *ways]) as step:
            now, following, source, *sequence = step.carried
            self._step(step.index, now, following, source, sequence[0] if sequence else None)
            moved = [f.at(source, steps)]
            if further is not None:
                moved.append(f.at(sequence[0], further))
            step.carry([following, now, *moved])
        # h goes to and fro between its two places.
        for place, final, part in zip(self.final, kernel.final, (kernel.steps % 2, 2), strict=False):
            if place is not None and final is not None:
                self._copy(place, final, part, self._width(part), into=False)
        f.finish()

    def _width(self, part: int) -> int:
        """Elements of a state."""
        return self.kernel.units if part == 2 else self.kernel.taps

    def _states(self) -> list[Value]:
        """Where h lies, and where the next one does."""
        return [self._part(0), self._part(1)]

    def _part(self, number: int) -> Value:
        """A part of the scratch memory, from this direction's first row on."""
        kernel, f = self.kernel, self.f
        rows = f.add(number * kernel.directions * kernel.batch, f.mul(self.direction, kernel.batch))
        return f.at(self.scratch, f.mul(rows, kernel.pitch))

    def _copy(self, pointer: Value, states: States, part: int, width: int, *, into: bool) -> None:
        """The chunk's rows of a state to or from scratch memory."""
        f, kernel = self.f, self.kernel
        outside, inside = f.at(pointer, f.mul(self.direction, states.directions)), self._part(part)
        end = f.minimum(f.mul(self.end_tile, kernel.blocking.rows), kernel.batch)
        with f.loop(f.mul(self.first_tile, kernel.blocking.rows), end) as row:
            ends = f.at(outside, f.mul(row.index, states.rows)), f.at(inside, f.mul(row.index, kernel.pitch))
            source, target = ends if into else ends[::-1]
            copy_row(f, source, target, width, kernel.host.lanes, pads=into)

    def _step(self, number: Value, now: Value, following: Value, source: Value, sequence: Value | None) -> None:
        """All panels, each for all tiles of the chunk; then the projection, if there is one.

        Every second step reads the weights backward: what the one before has read last is still in the nearest cache.
        """
        kernel, f = self.kernel, self.f
        made = self._part(kernel.scratch_shape[0] - 1) if kernel.projected else following
        backward = f.divmod(number, 2)[1]
        with f.loop(0, len(kernel.panels)) as each, f.loop(self.first_tile, self.end_tile) as tile:
            panel = self._mirrored(each.index, len(kernel.panels), backward)
            row = f.mul(tile.index, kernel.blocking.rows)
            unit, state = f.mul(panel, width_of(kernel.panels[0])), f.mul(row, kernel.pitch)
            own = f.at(f.at(self._part(2) if kernel.cell == "lstm" else now, state), unit)
            gates = f.at(f.at(source, f.mul(row, kernel.source.rows)), f.mul(unit, kernel.gates))
            weights = f.at(self.weights, f.mul(panel, kernel.panel_floats))
            target = self._target(sequence, row, unit)
            arguments = [weights, f.at(now, state), gates, own, f.at(f.at(made, state), unit), target]
            self._call(self.functions, kernel.panels, (panel, tile.index), [*arguments, as_value(backward)])
        if not kernel.projected:
            return
        projection = f.at(self.weights, len(kernel.panels) * kernel.panel_floats)
        with f.loop(0, len(kernel.projection_panels)) as each, f.loop(self.first_tile, self.end_tile) as tile:
            panel = self._mirrored(each.index, len(kernel.projection_panels), backward)
            row = f.mul(tile.index, kernel.blocking.rows)
            unit, state = f.mul(panel, width_of(kernel.projection_panels[0])), f.mul(row, kernel.pitch)
            weights = f.at(projection, f.mul(panel, kernel.projection_floats))
            hidden, target = f.at(made, state), self._target(sequence, row, unit)
            arguments = [weights, hidden, hidden, hidden, f.at(f.at(following, state), unit), target]
            self._call(
                self.projections, kernel.projection_panels, (panel, tile.index), [*arguments, as_value(backward)]
            )

    def _mirrored(self, index: Index, count: int, backward: Index) -> Index:
        """The index, or backward that from the end."""
        if count == 1:
            return 0
        f = self.f
        return f.add(index, f.mul(backward, f.sub(count - 1, f.mul(index, 2))))

    def _target(self, sequence: Value | None, row: Index, unit: Index) -> Value:
        """Where the sequence is written; any address where it is not."""
        if sequence is None or self.kernel.sequence is None:
            return self.scratch
        return self.f.at(self.f.at(sequence, self.f.mul(row, self.kernel.sequence.rows)), unit)

    def _call(
        self, functions: Functions, panels: Sequence[Panel], place: tuple[Index, Index], arguments: Sequence[Value]
    ) -> None:
        """The function of a panel and a tile."""
        for each in cases(self.f, place[0], panels):
            for rows in cases(self.f, place[1], self.kernel.tiles):
                self.f.call(functions[rows, each], arguments)

    def _of_direction(self, values: Sequence[Value]) -> Value:
        """The value that is this chunk's direction's."""
        if len(values) == 1:
            return values[0]
        return self.f.select(self.f.less(self.direction, 1), values[0], values[1])
