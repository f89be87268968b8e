"""Tables that the threads of a run walk: addresses of arguments, steps, segments and counters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from engine.compiler.addresses import MemorySpace, spaces_and_ports
from engine.compiler.executable import NativeSteps, Segment
from engine.compiler.runtime.memory import address_of, aligned_bytes
from engine.compiler.runtime.protocol import (
    COUNTERS,
    SEGMENTS,
    SHARES,
    SPIN,
    STEP_BYTES,
    STEPS,
    TEAM_BYTES,
    TRACE_BYTES,
    counter_bytes,
)
from engine.tensor import Array

if TYPE_CHECKING:
    from engine.compiler.runtime.program import Program

# Reads of a counter before a thread sleeps; about 60 µs.
SPINS = 1500
# A cancellable run checks after work of this time, estimated for a core of this speed.
CANCEL_CHECK_S = 0.01
FLOPS_PER_S = 2.5e10
BYTES_PER_S = 5e9


class Layout:
    """Common part of tables whose programs differ only in sizes: functions, and the target of each argument.

    Args:
        threads: of a run; also the number of shares of a step.
    """

    def __init__(self, program: Program, threads: int) -> None:
        plan, steps = program.executable, program.executable.steps
        self.threads = threads
        self.spaces, self._ports = spaces_and_ports(steps.blocks)
        bases = np.zeros(len(MemorySpace), np.int64)
        bases[[MemorySpace.CONSTANT, MemorySpace.WEIGHT]] = address_of(plan.constants), address_of(plan.weights)
        self.shifts = bases[self.spaces]
        self.inside = np.flatnonzero(self.spaces == MemorySpace.ARENA)
        self.inputs, self.outputs = self._outside(MemorySpace.INPUT), self._outside(MemorySpace.OUTPUT)
        functions = [program.code.address(each) for each in steps.functions]
        self.functions = np.array(functions, np.int64)
        self.ends = 8 * steps.ends[:-1, 0].astype(np.int64)

    def _outside(self, space: MemorySpace) -> list[tuple[int, list[int]]]:
        """Return which arguments point to each input or output, by its number."""
        found: dict[int, list[int]] = {}
        for k in np.flatnonzero(self.spaces == space).tolist():
            found.setdefault(int(self._ports[k]), []).append(k)
        return [*found.items()]


class Layouts:
    """Table layouts by number of threads, for all programs that differ only in sizes."""

    def __init__(self) -> None:
        self._found: dict[int, Layout] = {}

    def of(self, program: Program, threads: int) -> Layout:
        """Return the layout of a program's tables."""
        if threads not in self._found:
            self._found[threads] = Layout(program, threads)
        return self._found[threads]


class Tables:
    """Tables of one instance: arguments of every step, steps, segments and counters.

    Attributes:
        segments: first step and end of every row; never written again, because a thread that is late for a run looks
            its row up after that run has ended.
        cancellable_rows: for each segment, the rows that a cancellable run executes one after the other.
    """

    def __init__(self, program: Program, layout: Layout) -> None:
        self._layout = layout
        plan, steps = program.executable, program.executable.steps
        offsets = steps.offsets
        self.arguments = (offsets + layout.shifts).astype(np.int64, copy=False)
        self._words = self.arguments.data
        self._arena = 0
        self._inputs, self._outputs = (
            [(port, [(k, int(offsets[k])) for k in places]) for port, places in pointing]
            for pointing in (layout.inputs, layout.outputs)
        )
        self.steps = aligned_bytes(max(1, len(steps)) * STEP_BYTES).view(np.int64).reshape(-1, STEP_BYTES // 8)
        self._chunks = np.zeros(len(steps) + 1, np.int64)
        np.cumsum(steps.chunks, out=self._chunks[1:])
        if len(steps):
            rows = self.steps
            rows[:, 0], rows[:, 1] = layout.functions, address_of(self.arguments) + layout.ends
            rows[:, 2], rows[:, 3], rows[:, 4] = steps.chunks, self._chunks[:-1], steps.is_dealt
        self.steps.flags.writeable = False
        segments = plan.segments
        rows_of = [(each.first, each.last) for each in segments]
        self.cancellable_rows: list[range] = []
        for segment in segments:
            parts = _cancellable_parts(steps, segment)
            self.cancellable_rows.append(range(len(rows_of), len(rows_of) + len(parts)))
            rows_of.extend(parts)
        self.segments = np.array(rows_of, np.int64).reshape(-1, 2)
        self.segments.flags.writeable = False
        self.counters = aligned_bytes(max(1, len(steps)) * counter_bytes(layout.threads))
        self._trace: Array | None = None

    def make_team(self) -> Array:
        """Return a new block for threads to wait on, which refers to these tables."""
        team = aligned_bytes(TEAM_BYTES)
        words = team.view(np.int64)
        words[STEPS // 8] = self.steps.ctypes.data
        words[COUNTERS // 8] = self.counters.ctypes.data
        words[SEGMENTS // 8] = self.segments.ctypes.data
        words[SPIN // 8] = SPINS
        words[SHARES // 8] = self._layout.threads
        return team

    @property
    def trace(self) -> Array:
        """Return a row a chunk: thread, clock before, clock after, in ns; allocated on first use."""
        if self._trace is None:
            self._trace = np.zeros((max(1, self._chunks[-1]), TRACE_BYTES // 8), np.int64)
        return self._trace

    def traced(self, segment: Segment) -> list[Array]:
        """Return the trace of every step of a segment."""
        ends = self._chunks[segment.first : segment.last + 1]
        return [self.trace[first:end].copy() for first, end in pairwise(ends)]

    @property
    def nbytes(self) -> int:
        """Return the bytes of the tables."""
        return sum(each.nbytes for each in (self.arguments, self.steps, self.segments, self.counters))

    def use_arena(self, arena: int) -> None:
        """Point the arguments at an arena."""
        if arena != self._arena:
            self.arguments[self._layout.inside] += arena - self._arena
            self._arena = arena

    def set_io(self, inputs: Sequence[Array], outputs: dict[int, Array]) -> None:
        """Point the arguments at this run's inputs and outputs."""
        words = self._words
        for port, places in self._inputs:
            at = address_of(inputs[port])
            for place, offset in places:  # mostly one: slower with numpy
                words[place] = at + offset
        for port, places in self._outputs:
            at = address_of(outputs[port])
            for place, offset in places:
                words[place] = at + offset


def _cancellable_parts(steps: NativeSteps, segment: Segment) -> list[tuple[int, int]]:
    """Split a segment into consecutive steps of about ``CANCEL_CHECK_S`` together, or one that takes longer."""
    part = slice(segment.first, segment.last)
    times_s = steps.flops[part] / FLOPS_PER_S + steps.bytes[part] / BYTES_PER_S
    if segment.first < segment.last and times_s.sum() < CANCEL_CHECK_S:
        return [(segment.first, segment.last)]
    ends_s = np.cumsum(times_s)
    changes = np.flatnonzero(np.diff((ends_s / CANCEL_CHECK_S).astype(np.int64))) + 1
    bounds = [segment.first, *(changes + segment.first).tolist(), segment.last]
    return [(first, last) for first, last in pairwise(bounds) if first < last]
