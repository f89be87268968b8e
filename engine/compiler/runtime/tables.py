"""What a team of threads walks: addresses of arguments, steps, segments and counters, laid out once for a program."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from engine.compiler.blueprint import Segment
from engine.compiler.native import NativeSteps
from engine.compiler.places import Address, Home, offset_of, port_of, taken_apart
from engine.compiler.runtime.allocation import aligned_bytes
from engine.compiler.runtime.program import Program
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

# Looks at a counter before a thread sleeps; some 60 µs.
SPINS = 1500
# A run that may be cancelled looks up after so much work; what a slow core does in a second, until more is known.
PIECE_S = 0.01
FLOPS_PER_S = 1e10
BYTES_PER_S = 4e9
# Pieces that take so many times as long, or as short, are cut anew.
_FAR = 4


class Tables:
    """The addresses a run walks: arguments of every step, steps, segments and counters.

    Args:
        threads: of a run; a step's chunks fall into as many shares.

    Attributes:
        pieces: of every segment the numbers of the shorter ones it falls into, for runs that may be cancelled.
    """

    def __init__(self, program: Program, threads: int) -> None:
        self._threads = threads
        plan, steps = program.blueprint, program.blueprint.steps
        bases = np.zeros(len(Home), np.int64)
        bases[[Home.CONSTANT, Home.WEIGHT]] = address_of(plan.constants), address_of(plan.weights)
        homes, offsets = taken_apart(steps.places)
        self.arguments = offsets + bases[homes]
        self._words = self.arguments.data
        self._inside = np.flatnonzero(homes == Home.ARENA)
        self._arena = 0
        self._given, self._made = (self._outside(steps.places, homes, home) for home in (Home.INPUT, Home.OUTPUT))
        self.steps = aligned_bytes(max(1, len(steps)) * STEP_BYTES).view(np.int64).reshape(-1, STEP_BYTES // 8)
        self._chunks = np.cumsum([0, *steps.chunks])
        if len(steps):
            functions = [program.code.address(each) for each in steps.functions]
            arguments = address_of(self.arguments) + 8 * steps.ends[:-1, 0].astype(np.int64)
            self.steps[:] = np.stack([functions, arguments, steps.chunks, self._chunks[:-1], steps.is_dealt], axis=1)
        segments = program.blueprint.segments
        rows = [(each.first, each.last) for each in segments]
        self.pieces: list[list[int]] = []
        for segment in segments:
            cuts = _pieces(steps, segment, PIECE_S)
            self.pieces.append([len(rows) + number for number in range(len(cuts))])
            rows.extend(cuts)
        self.segments = np.array(rows, np.int64).reshape(-1, 2)
        self._at_first = [*self.pieces]
        self._plan = plan
        self.counters = aligned_bytes(max(1, len(steps)) * counter_bytes(threads))
        self._trace: Array | None = None

    @staticmethod
    def _outside(places: Array, homes: Array, home: Home) -> list[tuple[int, list[tuple[int, int]]]]:
        """By the number of the input or output, which arguments point there, and where to."""
        found: dict[int, list[tuple[int, int]]] = {}
        for k in np.flatnonzero(homes == home).tolist():
            place = Address(int(places[k]))
            found.setdefault(port_of(place), []).append((k, offset_of(place)))
        return [*found.items()]

    def make_team(self) -> Array:
        """A new block for threads to wait on, which leads them to these tables."""
        team = aligned_bytes(TEAM_BYTES)
        words = team.view(np.int64)
        words[STEPS // 8] = self.steps.ctypes.data
        words[COUNTERS // 8] = self.counters.ctypes.data
        words[SEGMENTS // 8] = self.segments.ctypes.data
        words[SPIN // 8] = SPINS
        words[SHARES // 8] = self._threads
        return team

    @property
    def trace(self) -> Array:
        """Of every chunk its thread, and the clock in ns before and after it; made when it is first asked for."""
        if self._trace is None:
            self._trace = np.zeros((max(1, self._chunks[-1]), TRACE_BYTES // 8), np.int64)
        return self._trace

    def traced(self, segment: Segment) -> list[Array]:
        """What the trace has of every step of a segment, in their order."""
        ends = self._chunks[segment.first : segment.last + 1]
        return [self.trace[first:end].copy() for first, end in pairwise(ends)]

    @property
    def nbytes(self) -> int:
        """Memory they take."""
        return sum(each.nbytes for each in (self.arguments, self.steps, self.segments, self.counters))

    def settle(self, arena: int) -> None:
        """Point the arguments at an arena."""
        if arena != self._arena:
            self.arguments[self._inside] += arena - self._arena
            self._arena = arena

    def took(self, number: int, seconds: float) -> None:
        """A segment has taken so long in its pieces: cut it anew, where they were far from what they should take.

        Each is looked up after in Python, which kernels have driven out of the caches. There are never more than at
        first. No run is under way meanwhile.
        """
        rows, usual_s = self._at_first[number], PIECE_S * len(self.pieces[number])
        is_fine, is_coarse = seconds * _FAR < usual_s, seconds > usual_s * _FAR
        if (is_fine and len(self.pieces[number]) > 1) or (is_coarse and len(self.pieces[number]) < len(rows)):
            steps, segment = self._plan.steps, self._plan.segments[number]
            thought_s = _thought_s(steps)[segment.first : segment.last].sum()
            cuts = _pieces(steps, segment, PIECE_S * max(1.0, thought_s / seconds))
            self.pieces[number] = rows[: len(cuts)]
            self.segments[self.pieces[number]] = cuts

    def aim(self, inputs: Sequence[Array], outputs: dict[int, Array]) -> None:
        """Point the arguments at this run's inputs and outputs."""
        words = self._words
        for port, places in self._given:
            at = address_of(inputs[port])
            for place, offset in places:  # few, mostly one: numpy would take longer
                words[place] = at + offset
        for port, places in self._made:
            at = address_of(outputs[port])
            for place, offset in places:
                words[place] = at + offset


def _pieces(steps: NativeSteps, segment: Segment, most_s: float) -> list[tuple[int, int]]:
    """Consecutive steps of a segment that take so long together on a slow core, or one that takes longer."""
    cuts: list[tuple[int, int]] = []
    first, spent_s = segment.first, 0.0
    for index, thought_s in enumerate(_thought_s(steps)[segment.first : segment.last].tolist(), segment.first):
        spent_s += thought_s
        if spent_s > most_s or index == segment.last - 1:
            cuts.append((first, index + 1))
            first, spent_s = index + 1, 0.0
    return cuts


def _thought_s(steps: NativeSteps) -> Array:
    """Of each."""
    return np.asarray(steps.flops / FLOPS_PER_S + steps.bytes / BYTES_PER_S)


_ADDRESS_OF, _BUFFER_OF = ctypes.addressof, ctypes.c_char.from_buffer


def address_of(array: Array) -> int:
    """Where an array's first byte lies."""
    try:
        return _ADDRESS_OF(_BUFFER_OF(array))  # type: ignore[arg-type]  # an array is a buffer
    except (TypeError, ValueError, BufferError):  # read-only, not in one piece, empty: numpy knows, but takes its time
        return int(array.__array_interface__["data"][0])
