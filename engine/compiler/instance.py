"""A program ready to run: its arena, its tables of addresses, and the threads that walk them.

One run at a time, with all threads; runs that overlap follow each other.
"""

from __future__ import annotations

import ctypes
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.compiler.allocation import aligned_bytes, allocate
from engine.compiler.blueprint import Address, Home, ReferenceCall, Region, Segment
from engine.compiler.program import Program
from engine.compiler.team import (
    COUNTER_BYTES,
    COUNTERS,
    SEGMENT_BITS,
    SEGMENTS,
    SPIN,
    STEP_BYTES,
    STEPS,
    STOP,
    TEAM_BYTES,
)
from engine.errors import EngineError, ExecutionError
from engine.graph.inference import split_outputs
from engine.tensor import Array, parse_dtype

# Looks at a counter before a thread sleeps; some 60 µs.
SPINS = 1500
NOT_TIMED: Array = np.empty(0, np.int64)
_RUN = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
_WORKER = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)


class NotFiniteError(Exception):
    """A kernel met numbers that are not finite and that its algorithm would spread; the results are void."""


class Instance:
    """Memory and threads for one run at a time of a program.

    Args:
        threads: of a run, the caller's included.
    """

    def __init__(self, program: Program, threads: int = 1) -> None:
        self.program = program
        self._arena = allocate(program.blueprint.arena_bytes)
        self._arena_at = _address(self._arena)
        at = program.blueprint.alarm
        self._alarm = None if at is None else self._arena[at : at + 4]
        self._lock = threading.Lock()
        self._epoch = 0
        self._tables = _Tables(program, self._arena_at)
        self._run = _RUN(program.code.address("run"))
        self._team_at = self._tables.team.ctypes.data
        self._stop = weakref.finalize(self, _stop, self._tables, program)
        worker = _WORKER(program.code.address("worker"))
        for number in range(1, threads):
            threading.Thread(target=_park, args=(worker, self._tables, program, number), daemon=True).start()

    def run(self, inputs: Sequence[Array], times: list[tuple[Segment, Array]] | None = None) -> list[Any]:
        """The graph's outputs for inputs of the program's shapes; new arrays every time.

        Args:
            times: receives for every segment the clock in ns before it and after each of its steps.

        Raises:
            NotFiniteError: the results are void; a program without Winograd's algorithm has to compute them.
        """
        with self._lock:
            return self._run_locked(inputs, times)

    def close(self) -> None:
        """Send the threads home."""
        self._stop()

    def _run_locked(self, inputs: Sequence[Array], times: list[tuple[Segment, Array]] | None) -> list[Any]:
        arrays = [np.ascontiguousarray(each) for each in inputs]
        results = self._outputs()
        self._tables.aim(arrays, results)
        values: dict[str, Any] = {}
        for number, segment in enumerate(self.program.blueprint.segments):
            if segment.call is not None:
                began = time.monotonic_ns()
                self._run_reference(segment.call, values, arrays, results)
                stamps = np.array([began, time.monotonic_ns()])
            else:
                stamps = self._run_native(number, segment, times is not None)
            if times is not None:
                times.append((segment, stamps))
        if self._alarm is not None and self._alarm.any():
            self._alarm[:] = 0
            raise NotFiniteError
        return [self._result(each, values, arrays, results) for each in self.program.blueprint.outputs]

    def _run_native(self, number: int, segment: Segment, is_timed: bool) -> Array:
        """Run a segment's kernels; where it is timed, the clock before and after each of them."""
        self._epoch += 1
        at = self._tables.times.ctypes.data if is_timed else None
        began = self._run(self._team_at, self._epoch << SEGMENT_BITS | number, at)
        return np.array([began, *self._tables.times[segment.first : segment.last]]) if is_timed else NOT_TIMED

    def _outputs(self) -> dict[int, Array]:
        """Memory for outputs that kernels write themselves, by number of the output."""
        return {
            region.address.port: np.empty(region.shape, region.dtype)
            for region in self.program.blueprint.outputs
            if isinstance(region, Region) and region.is_whole_output
        }

    def _run_reference(
        self, call: ReferenceCall, values: dict[str, Any], inputs: Sequence[Array], results: dict[int, Array]
    ) -> None:
        op = self.program.operators[call.operator]
        if op.layer is None:
            return
        # A value kept by name may hold on to its operands for longer than their memory is theirs.
        is_kept = None in call.outputs
        operands = [
            self._value(operand.name, values) if region is None else self._operand(region, inputs, results, is_kept)
            for operand, region in zip(op.inputs, call.inputs, strict=True)
        ]
        try:
            answer = op.layer.forward(operands)
        except EngineError as error:
            raise error.at(op.place) from error.__cause__
        except Exception as exc:
            raise ExecutionError(f"failed with {type(exc).__name__}: {exc}", where=op.place) from exc
        for operand, region, value in zip(op.outputs, call.outputs, split_outputs(op, answer), strict=True):
            if region is None:
                values[operand.name] = np.asarray(value) if isinstance(value, np.generic) else value
            elif not isinstance(value, np.ndarray | np.generic) or value.shape != region.shape:
                raise ExecutionError("the result is not what was inferred", where=op.place, expected=str(region.shape))
            else:
                np.copyto(self._array(region, inputs, results), value, casting="no")

    def _value(self, name: str, values: dict[str, Any]) -> Any:
        return values[name] if name in values else self.program.known[name]

    def _operand(self, region: Region, inputs: Sequence[Array], results: dict[int, Array], is_kept: bool) -> Array:
        array = self._array(region, inputs, results)
        array = array.copy() if is_kept else array
        array.flags.writeable = False
        return array

    def _array(self, region: Region, inputs: Sequence[Array], results: dict[int, Array]) -> Array:
        """The tensor of a region, in this instance's memory."""
        block = self._block(region.address, inputs, results)
        return np.ndarray(region.shape, parse_dtype(region.dtype), block, region.address.offset, region.strides)

    def _block(self, address: Address, inputs: Sequence[Array], results: dict[int, Array]) -> Array:
        if address.home is Home.ARENA:
            return self._arena
        if address.home is Home.CONSTANT:
            return self.program.blueprint.constants
        array = inputs[address.port] if address.home is Home.INPUT else results[address.port]
        return array.reshape(-1).view(np.uint8)

    def _result(
        self, output: Region | str, values: dict[str, Any], inputs: Sequence[Array], results: dict[int, Array]
    ) -> Any:
        if isinstance(output, str):
            value = self._value(output, values)
            return value.copy() if isinstance(value, np.ndarray) else value
        if output.is_whole_output:
            return results[output.address.port]
        return self._array(output, inputs, results).copy()


class _Tables:
    """The addresses a run walks: arguments of every step, steps, segments, counters, and the team's block."""

    def __init__(self, program: Program, arena: int) -> None:
        steps = program.blueprint.steps
        places = [argument for step in steps for argument in step.arguments]
        bases = {Home.ARENA: arena, Home.CONSTANT: _address(program.blueprint.constants)}
        self.arguments = np.array([bases.get(each.home, 0) + each.offset for each in places], np.int64)
        outside = [(k, each) for k, each in enumerate(places) if each.home in (Home.INPUT, Home.OUTPUT)]
        self._aimed = [
            (home, port, np.array([k for k, each in outside if (each.home, each.port) == (home, port)]))
            for home, port in dict.fromkeys((each.home, each.port) for _, each in outside)
        ]
        self._offsets = self.arguments.copy()
        self.steps = aligned_bytes(max(1, len(steps)) * STEP_BYTES).view(np.int64).reshape(-1, STEP_BYTES // 8)
        at = _address(self.arguments)
        for record, step in zip(self.steps, steps, strict=False):
            record[:3] = program.code.address(step.function), at, step.chunks
            at += 8 * len(step.arguments)
        self.segments = np.array([(each.first, each.last) for each in program.blueprint.segments], np.int64).reshape(
            -1, 2
        )
        self.counters = aligned_bytes(max(1, len(steps)) * COUNTER_BYTES)
        self.times = np.zeros(max(1, len(steps)), np.int64)
        self.team = aligned_bytes(TEAM_BYTES)
        words = self.team.view(np.int64)
        words[STEPS // 8] = self.steps.ctypes.data
        words[COUNTERS // 8] = self.counters.ctypes.data
        words[SEGMENTS // 8] = self.segments.ctypes.data
        words[SPIN // 8] = SPINS

    def aim(self, inputs: Sequence[Array], outputs: dict[int, Array]) -> None:
        """Point the arguments at this run's inputs and outputs."""
        for home, port, places in self._aimed:
            array = inputs[port] if home is Home.INPUT else outputs[port]
            self.arguments[places] = self._offsets[places] + _address(array)


def _park(worker: Callable[[int, int], None], tables: _Tables, program: Program, number: int) -> None:
    """A thread's whole life; it holds the program, whose code it is in, and the tables, whose words it reads."""
    worker(tables.team.ctypes.data, 0)
    del tables, program


def _stop(tables: _Tables, program: Program) -> None:
    run = _RUN(program.code.address("stop"))
    run(tables.team.ctypes.data, STOP, None)


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])
