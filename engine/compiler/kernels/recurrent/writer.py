"""Code of a recurrence around its inner functions: states, steps, panels, tiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.compiler.codegen.ir import Index, Module, Value, as_value
from engine.compiler.kernels.channels import Panel, cases, width_of
from engine.compiler.kernels.kernel import block_of, start
from engine.compiler.kernels.recurrent.block import copy_row
from engine.compiler.kernels.recurrent.layout import Layout, States

Functions = dict[tuple[int, Panel], str]


class Writer:
    """Writer of a recurrence."""

    def __init__(self, kernel: Layout, module: Module, functions: Functions, projections: Functions) -> None:
        self.kernel, self.functions, self.projections = kernel, functions, projections
        has_sequence = kernel.sequence is not None
        self.direction: Index
        self.f, pointers, self.chunk = start(module, kernel, kernel.addresses)
        only = 0 if kernel.groups else self.chunk
        self.direction, block = self.f.divmod(self.chunk, kernel.blocks) if kernel.directions > 1 else (0, only)
        self.first_tile, self.end_tile = block_of(self.f, block, kernel.block, len(kernel.tiles))
        given = iter(pointers)
        ways = [[next(given) for _ in range(1 + has_sequence)] for _ in range(kernel.directions)]
        self.source, *sequence = (self.of_direction(each) for each in zip(*ways, strict=True))
        self.sequence = sequence[0] if sequence else None
        self.weights = self.f.at(next(given), self.f.mul(self.direction, kernel.direction_floats))
        self.initial = [next(given) for _ in kernel.initial]
        self.scratch = next(given)
        self.gates = None if kernel.hoisted is None else next(given)
        self.final = [None if each is None else next(given) for each in kernel.final]
        self.below, self.own = (
            next(given) if takes_sizes else None for takes_sizes in (kernel.waits, kernel.publishes)
        )
        self.counts = next(given) if kernel.groups else None

    def emit(self, steps: Callable[[], None]) -> None:
        """Write the copies of initial states, the steps and the copies of final states."""
        self.begin()
        steps()
        self.end()
        self.f.finish()

    def begin(self) -> None:
        """Copy the initial states to scratch memory."""
        for pointer, states, part in zip(self.initial, self.kernel.initial, (0, 2), strict=False):
            self._copy(pointer, states, part, into=True)

    def end(self) -> None:
        """Copy the final states out of scratch memory."""
        kernel = self.kernel
        # h alternates between its two buffers.
        for place, final, part in zip(self.final, kernel.final, (kernel.steps % 2, 2), strict=False):
            if place is not None and final is not None:
                self._copy(place, final, part, into=False)

    def steps(self) -> None:
        """Write all steps, with the input projection computed beforehand."""
        with self.f.loop(0, self.kernel.steps) as step:
            self.step(step.index, self.gates_of(step.index))

    def gates_of(self, step: Index) -> Value:
        """Return the address of a step's input projection."""
        stride = self.of_direction([as_value(each) for each in self.kernel.source.steps])
        return self.f.at(self.source, self.f.mul(step, stride))

    def _part(self, number: Index) -> Value:
        """Return the address of a part of scratch memory, from this direction's first row on."""
        kernel, f = self.kernel, self.f
        rows = f.add(f.mul(number, kernel.directions * kernel.batch), f.mul(self.direction, kernel.batch))
        return f.at(self.scratch, f.mul(rows, kernel.pitch))

    def _copy(self, pointer: Value, states: States, part: int, *, into: bool) -> None:
        """Copy the chunk's rows of a state to or from scratch memory."""
        f, kernel = self.f, self.kernel
        outside, inside = f.at(pointer, f.mul(self.direction, states.directions)), self._part(part)
        with f.loop(f.mul(self.first_tile, kernel.blocking.rows), self._end_row) as row:
            ends = f.at(outside, f.mul(row.index, states.rows)), f.at(inside, f.mul(row.index, kernel.pitch))
            source, target = ends if into else ends[::-1]
            copy_row(f, source, target, kernel.units if part == 2 else kernel.taps, kernel.host.lanes, pads=into)

    def step(
        self,
        number: Index,
        source: Value,
        *,
        panels: tuple[Index, Index] | None = None,
        group: Index | None = None,
    ) -> None:
        """Write a loop over all or some panels and the tiles of the chunk; then the projection, if there is one.

        Every second step reads the weights backward, because those read last are still in the first-level cache.

        Args:
            source: address of the input projection.
            panels: begin and end of a range.
            group: that computes it, if threads share the step.
        """
        kernel, f = self.kernel, self.f
        backward = f.divmod(number, 2)[1]
        now, following = self._part(backward), self._part(f.sub(1, backward))
        sequence = self._sequence_at(number)
        made = self._part(kernel.parts - 1) if kernel.projected else following
        multiplied, pitch = self._rounded(now, group)
        some = panels or (0, len(kernel.panels))
        with f.loop(*some) as each, f.loop(self.first_tile, self.end_tile) as tile:
            panel = self._mirrored(each.index, some, backward)
            row = f.mul(tile.index, kernel.blocking.rows)
            unit, state = f.mul(panel, width_of(kernel.panels[0])), f.mul(row, kernel.pitch)
            factors = f.at(multiplied, f.mul(row, pitch))
            own = f.at(f.at(self._part(2) if kernel.cell == "lstm" else now, state), unit)
            gates = f.at(f.at(source, f.mul(row, kernel.source.rows)), f.mul(unit, kernel.gates))
            weights = f.at(self.weights, f.mul(panel, kernel.panel_floats))
            target = self._target(sequence, row, unit)
            arguments = [weights, factors, gates, own, f.at(f.at(made, state), unit), target]
            arguments.append(as_value(backward))
            self._call(self.functions, kernel.panels, (panel, tile.index), arguments)
        if not kernel.projected:
            return
        projection = f.at(self.weights, len(kernel.panels) * kernel.panel_floats)
        with f.loop(0, len(kernel.projection_panels)) as each, f.loop(self.first_tile, self.end_tile) as tile:
            panel = self._mirrored(each.index, (0, len(kernel.projection_panels)), backward)
            row = f.mul(tile.index, kernel.blocking.rows)
            unit, state = f.mul(panel, width_of(kernel.projection_panels[0])), f.mul(row, kernel.pitch)
            weights = f.at(projection, f.mul(panel, kernel.projection_floats))
            hidden, target = f.at(made, state), self._target(sequence, row, unit)
            arguments = [weights, hidden, hidden, hidden, f.at(f.at(following, state), unit), target]
            self._call(
                self.projections, kernel.projection_panels, (panel, tile.index), [*arguments, as_value(backward)]
            )

    def _rounded(self, now: Value, group: Index | None) -> tuple[Value, int]:
        """Return the address of what is multiplied in row 0, the rounded h of the chunk, and the distance of rows."""
        kernel, f = self.kernel, self.f
        if kernel.rounding is None:
            return now, kernel.pitch
        copy = f.mul(self.direction if group is None else group, kernel.batch * kernel.rounding.pitch)
        target = f.at(f.at(self.scratch, kernel.state_floats), copy)
        rows = f.mul(self.first_tile, kernel.blocking.rows), self._end_row
        kernel.rounding.emit(f, kernel.host, lambda row: f.at(now, f.mul(row, kernel.pitch)), target, rows)
        return f.at(target, kernel.rounding.head), kernel.rounding.pitch

    @property
    def _end_row(self) -> Index:
        """Return the end of the chunk's rows."""
        return self.f.minimum(self.f.mul(self.end_tile, self.kernel.blocking.rows), self.kernel.batch)

    def _sequence_at(self, number: Index) -> Value | None:
        """Return the address of h of a step in the output sequence."""
        if self.sequence is None or self.kernel.sequence is None:
            return None
        stride = self.of_direction([*map(as_value, self.kernel.sequence.steps)])
        return self.f.at(self.sequence, self.f.mul(number, stride))

    def _mirrored(self, index: Index, some: tuple[Index, Index], backward: Index) -> Index:
        """Return the index, or if ``backward`` is set the one mirrored within a range."""
        if some == (0, 1):
            return 0
        f, (begin, end) = self.f, some
        return f.add(index, f.mul(backward, f.sub(f.add(begin, f.sub(end, 1)), f.mul(index, 2))))

    def _target(self, sequence: Value | None, row: Index, unit: Index) -> Value:
        """Return the address in the output sequence; an arbitrary one if there is no sequence."""
        if sequence is None or self.kernel.sequence is None:
            return self.scratch
        return self.f.at(self.f.at(sequence, self.f.mul(row, self.kernel.sequence.rows)), unit)

    def _call(
        self, functions: Functions, panels: Sequence[Panel], place: tuple[Index, Index], arguments: Sequence[Value]
    ) -> None:
        """Call the function of a panel and a tile."""
        for each in cases(self.f, place[0], panels):
            for rows in cases(self.f, place[1], self.kernel.tiles):
                self.f.call(functions[rows, each], arguments)

    def of_direction(self, values: Sequence[Value]) -> Value:
        """Return the value for the direction of this chunk."""
        if len(values) == 1:
            return values[0]
        return self.f.select(self.f.less(self.direction, 1), values[0], values[1])
