"""Tables that the threads of a run walk: addresses of arguments, steps, segments and counters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from engine.compiler.addresses import MemorySpace, spaces_and_ports
from engine.compiler.executable import Segment
from engine.compiler.runtime.memory import address_of, aligned_bytes
from engine.compiler.runtime.protocol import (
    COUNTERS,
    LINE_BYTES,
    POINTER_COUNT,
    POINTER_WORDS,
    POINTERS,
    SEGMENT_BITS,
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
# Offset of the address of the elements in an array object: numpy's C API has it behind the header of every object.
_DATA = object.__basicsize__


class Tables:
    """Tables of one instance: arguments of every step, steps, segments and counters.

    Args:
        program: gives the functions, and the target of each argument; ``bind`` gives the numbers.
        threads: of a run; also the number of shares of a step.

    Attributes:
        segments: first step and end of every row; the row after those of the segments is empty.
        arrays: address of the list of this run's arrays, which ``set_io`` writes.
        arena: address of the arena that arguments point to.
    """

    def __init__(self, program: Program, threads: int) -> None:
        plan, steps = program.plan, program.plan.steps
        self._threads = threads
        self._spaces, self._ports = spaces_and_ports(steps.blocks)
        bases = np.zeros(len(MemorySpace), np.int64)
        bases[[MemorySpace.CONSTANT, MemorySpace.WEIGHT]] = address_of(plan.constants), address_of(plan.weights)
        self._bases = bases[self._spaces]
        self._inside = np.flatnonzero(self._spaces == MemorySpace.ARENA)
        self._outside = np.flatnonzero(np.isin(self._spaces, [MemorySpace.INPUT, MemorySpace.OUTPUT]))
        self.arena = 0
        self._inputs, self._outputs = self._ports_of(MemorySpace.INPUT), self._ports_of(MemorySpace.OUTPUT)
        self.arguments = np.zeros(len(steps.blocks), np.int64)
        self._pointers = self._pointer_rows()
        self._arrays = np.zeros(len(self._inputs) + len(self._outputs) + 1, np.int64)
        self.arrays = address_of(self._arrays)
        self._words = self._arrays.data
        self.steps = aligned_bytes(max(1, len(steps)) * STEP_BYTES).view(np.int64).reshape(-1, STEP_BYTES // 8)
        self.counters = aligned_bytes(max(1, len(steps)) * counter_bytes(threads))
        self.segments = np.zeros((len(plan.segments) + 1 + len(steps), 2), np.int64)
        self.segments[: len(plan.segments)] = [(each.first, each.last) for each in plan.segments] or np.empty((0, 2))
        if len(steps):
            self.steps[:, 0] = [program.code.address(each) for each in steps.functions]
            self.steps[:, 1] = address_of(self.arguments) + 8 * steps.ends[:-1, 0].astype(np.int64)
            self.steps[:, 4] = steps.is_dealt
        self.bind(program)

    def bind(self, program: Program) -> None:
        """Take the numbers of a program, which differs from the one before at most in sizes.

        No thread may find a chunk to compute meanwhile; see ``retire``.
        """
        steps = program.plan.steps
        offsets = program.numbers(steps.offsets)
        self.arguments[:] = offsets + self._bases
        self._pointers[:, 2] = offsets[self._outside]
        if len(steps):
            self.steps[:, 2] = program.numbers(steps.chunks)
        self._program = program
        self._trace: Array | None = None
        self._cancellable_rows: list[range] | None = None

    @property
    def cancellable_rows(self) -> list[range]:
        """For each segment, the rows that a cancellable run executes one after the other."""
        if self._cancellable_rows is None:
            self._cancellable_rows = self._write_cancellable_rows()
        return self._cancellable_rows

    def _write_cancellable_rows(self) -> list[range]:
        """Write the rows of parts of segments after the others."""
        program = self._program
        steps, segments = program.plan.steps, program.plan.segments
        times_s = program.numbers(steps.flops) / FLOPS_PER_S + program.numbers(steps.bytes) / BYTES_PER_S
        if float(times_s.sum()) < CANCEL_CHECK_S:
            return [range(number, number + 1) for number in range(len(segments))]
        rows: list[range] = []
        end = len(segments) + 1
        for segment in segments:
            parts = _cancellable_parts(times_s, segment)
            rows.append(range(end, end + len(parts)))
            self.segments[end : end + len(parts)] = parts or np.empty((0, 2))
            end += len(parts)
        return rows

    def retire(self, epoch: int) -> None:
        """Mark all chunks as taken in an epoch, so that threads of earlier ones compute nothing more.

        Other threads see what is written after the next run begins only together with these marks.
        """
        self.counters.view(np.int64)[:: LINE_BYTES // 8] = epoch << SEGMENT_BITS

    def _ports_of(self, space: MemorySpace) -> list[int]:
        """Return the numbers of the inputs or outputs to which arguments point."""
        return sorted({*self._ports[self._spaces == space].tolist()})

    def _pointer_rows(self) -> Array:
        """Return the rows of arguments that point to inputs and outputs; ``bind`` writes their offsets."""
        rows = np.zeros((len(self._outside), POINTER_WORDS), np.int64)
        rows[:, 0] = address_of(self.arguments) + 8 * self._outside
        for row, k in zip(rows, self._outside.tolist(), strict=True):
            is_input = self._spaces[k] == MemorySpace.INPUT
            ports, before = (self._inputs, 0) if is_input else (self._outputs, len(self._inputs))
            row[1] = before + ports.index(int(self._ports[k]))
        return rows

    def make_team(self) -> Array:
        """Return a new block for threads to wait on, which refers to these tables."""
        team = aligned_bytes(TEAM_BYTES)
        words = team.view(np.int64)
        words[STEPS // 8] = self.steps.ctypes.data
        words[COUNTERS // 8] = self.counters.ctypes.data
        words[SEGMENTS // 8] = self.segments.ctypes.data
        words[SPIN // 8] = SPINS
        words[SHARES // 8] = self._threads
        words[POINTERS // 8] = self._pointers.ctypes.data
        words[POINTER_COUNT // 8] = len(self._pointers)
        return team

    @property
    def trace(self) -> Array:
        """Return a row a chunk: thread, clock before, clock after, in ns; allocated on first use."""
        if self._trace is None:
            ends = np.cumsum(self.steps[:, 2])
            self.steps[:, 3] = ends - self.steps[:, 2]
            self._trace = np.zeros((max(1, int(ends[-1])), TRACE_BYTES // 8), np.int64)
        return self._trace

    def traced(self, segment: Segment) -> list[Array]:
        """Return the trace of every step of a segment."""
        rows = self.steps[segment.first : segment.last].tolist()
        return [self.trace[first : first + chunks].copy() for _, _, chunks, first, _ in rows]

    @property
    def nbytes(self) -> int:
        """Return the bytes of the tables."""
        return sum(each.nbytes for each in (self.arguments, self.steps, self.segments, self.counters))

    def use_arena(self, arena: int) -> None:
        """Point the arguments at an arena."""
        for addresses in (self._bases, self.arguments):
            addresses[self._inside] += arena - self.arena
        self.arena = arena

    def set_io(self, inputs: Sequence[Array], outputs: dict[int, Array]) -> None:
        """List this run's arrays: the places where numpy keeps the addresses of their elements."""
        words, number = self._words, 0
        for port in self._inputs:
            words[number] = id(inputs[port]) + _DATA
            number += 1
        for port in self._outputs:
            words[number] = id(outputs[port]) + _DATA
            number += 1


def _cancellable_parts(times_s: Array, segment: Segment) -> list[tuple[int, int]]:
    """Split a segment into consecutive steps of about ``CANCEL_CHECK_S`` together, or one that takes longer.

    Args:
        times_s: estimated time of each step of the program.
    """
    own_s = times_s[segment.first : segment.last]
    if segment.first < segment.last and own_s.sum() < CANCEL_CHECK_S:
        return [(segment.first, segment.last)]
    changes = np.flatnonzero(np.diff((np.cumsum(own_s) / CANCEL_CHECK_S).astype(np.int64))) + 1
    bounds = [segment.first, *(changes + segment.first).tolist(), segment.last]
    return [(first, last) for first, last in pairwise(bounds) if first < last]
