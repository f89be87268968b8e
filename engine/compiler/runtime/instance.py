"""Instances: programs ready to run, with an arena, tables of addresses and threads.

One run at a time uses all threads; concurrent runs wait for each other.
"""

from __future__ import annotations

import ctypes
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from engine.cancellation import check_cancelled, is_cancellable
from engine.compiler.addresses import Address, MemorySpace, offset_of, port_of, space_of
from engine.compiler.executable import FaultFlag, ReferenceCall, Region
from engine.compiler.runtime.memory import NO_ARENA, Arena, Arenas, new_arena, new_user
from engine.compiler.runtime.program import Program
from engine.compiler.runtime.protocol import SEGMENT_BITS
from engine.compiler.runtime.report import Clocked
from engine.compiler.runtime.tables import Tables
from engine.compiler.runtime.worker_pool import POOL, Workers
from engine.errors import EngineError
from engine.graph.building.inference import UnforeseenResultError, computed_outputs
from engine.tensor import Array, named_dtype, spec_of

_CANCELLED = "the run was cancelled"
NOWHERE: Final[Mapping[int, Array]] = {}
_RUN = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
_SMALL_ARENA: Final = 1 << 14
"""Bytes of an arena that costs less to keep than to lend to every run."""
WORTH_WAKING: Final = 10
"""Chunks by which other threads must shorten a run. Waking one costs the caller 8 µs, and it helps 40 µs later."""


class NotFiniteError(Exception):
    """Kernel met infinities or NaN that its algorithm would spread; the results are void."""


class OutsideTableError(UnforeseenResultError):
    """Kernel met an index out of range, or an integer division by 0; the reference reports the error."""


class Instance:
    """Memory and threads for one run at a time of a program.

    Args:
        program: as for ``bind``.
        threads: of a run, the caller's included.
        arenas: pool that lends an arena to every run; None for an arena of its own, which a small one always is.

    Attributes:
        used_s: time of its last run, on time.monotonic()'s clock.
    """

    def __init__(self, program: Program, threads: int = 1, arenas: Arenas | None = None) -> None:
        self._arenas = arenas
        self._lock = threading.Lock()
        self._epoch = 0
        self.used_s = time.monotonic()
        # More threads than a step has chunks would only search for work.
        self._threads = threads if program.is_bound else min(threads, int(program.plan.steps.chunks.max(initial=1)))
        self._tables = Tables(program, self._threads)
        self._arena = NO_ARENA
        self._take(program)
        self._run = _RUN(program.code.address("run"))
        self._alone = Workers(program, self._tables, 0)
        # A list, because the finalizer must not refer to the instance.
        self._crew: list[Workers] = []
        self._stop = weakref.finalize(self, _release_workers, self._crew)

    def bind(self, program: Program) -> None:
        """Run this program from now on; it differs from the one before at most in sizes, and no run is in progress."""
        if self._threads > 1:  # threads that are late for an earlier run must find nothing to compute
            self._tables.retire(self._epoch + 1)
            self._run_row(self._workers().address, len(program.plan.segments), None, None)
        self._tables.bind(program)
        self._take(program)

    def _take(self, program: Program) -> None:
        """Take from a program what depends on sizes."""
        plan = program.plan
        self.program = program
        self._is_shared = self._threads > 1 and program.saved_chunks(self._threads) >= WORTH_WAKING
        self._user = new_user()
        self._arena_bytes = program.number(plan.arena_bytes)
        self._clean = [(program.number(first), program.number(last)) for first, last in plan.clean]
        self._flag_at = None if plan.fault_flag is None else program.number(plan.fault_flag) // 4
        self._is_lent = self._arenas is not None and self._arena_bytes > _SMALL_ARENA
        if self._is_lent:
            self._arena = NO_ARENA
        elif self._arena.size < self._arena_bytes or not self._arena.size:
            self._use_arena(new_arena(self._arena_bytes if self._arenas is None else _SMALL_ARENA))
        else:
            for first, last in self._clean:
                self._arena.block[first:last] = 0

    def run(
        self, inputs: Sequence[Array], times: list[Clocked] | None = None, into: Mapping[int, Array] = NOWHERE
    ) -> list[Any]:
        """Return the graph's outputs for inputs of the program's shapes, in new arrays.

        Args:
            times: receives the trace of every segment.
            into: arrays for some of the kernels' outputs, by number of the output.

        Raises:
            RunCancelledError: the caller cancelled; checked before every operator on the reference, and every few
                milliseconds of kernels.
            NotFiniteError: the results are void; a program without Winograd's algorithm has to compute them.
            OutsideTableError: the results are void; the reference has to report the error.
        """
        self.used_s = time.monotonic()
        arenas = self._arenas if self._is_lent else None
        with self._lock:
            if arenas is not None:
                self._use_arena(arenas.take(self._arena_bytes, self._user, self._clean))
            workers = self._workers()
            try:
                return self._run_locked(workers.address, inputs, times, into)
            finally:
                if workers.is_dismissed:  # the run may have overwritten the generation that told the threads to stop
                    workers.dismiss()
                if arenas is not None:
                    arenas.give(self._arena)
                    self._arena = NO_ARENA

    def _use_arena(self, arena: Arena) -> None:
        """Write to this arena from now on."""
        self._arena = arena
        if arena.address != self._tables.arena:
            self._tables.use_arena(arena.address)

    def _workers(self) -> Workers:
        """Return the threads that wait for a run; start new ones if there are none. A short run has none."""
        if not (self._is_shared and self._stop.alive):
            return self._alone
        if not self._crew or self._crew[0].is_dismissed:
            self._crew[:] = [Workers(self.program, self._tables, self._threads - 1)]
        workers = self._crew[0]
        POOL.enter(workers)
        if not self._stop.alive:  # closed meanwhile
            POOL.leave(workers)
        return workers

    def close(self) -> None:
        """Dismiss the threads; current and later runs do without them."""
        self._stop()

    def _run_locked(
        self, team: int, inputs: Sequence[Array], times: list[Clocked] | None, into: Mapping[int, Array]
    ) -> list[Any]:
        program = self.program
        if program.states:
            inputs = [_whole_state(each) if port in program.states else each for port, each in enumerate(inputs)]
        arrays = list(map(np.ascontiguousarray, inputs))
        results: dict[int, Array] = {}
        for port, shape, dtype in program.kernel_outputs:
            results[port] = into[port] if port in into else np.empty(shape, dtype)
        self._tables.set_io(arrays, results)
        values: dict[str, Any] = {}
        for port, name in program.texts:
            values[name] = arrays[port]
        for number, segment in enumerate(program.segments):
            if segment.call is None:
                at = None if times is None else self._tables.trace.ctypes.data
                run = self._run_cancellable if is_cancellable() else self._run_row
                began = run(team, number, at, self._tables.arrays)
                if times is not None:
                    times.append(Clocked(segment, began, self._tables.traced(segment)))
            else:
                if is_cancellable():
                    check_cancelled(program.operators[segment.call.operator].where, _CANCELLED)
                began = time.monotonic_ns()
                self._run_reference(segment.call, values, arrays, results)
                if times is not None:
                    times.append(Clocked(segment, began, [np.array([[0, began, time.monotonic_ns()]])]))
        if self._flag_at is not None and (reason := self._arena.words[self._flag_at]):
            self._arena.words[self._flag_at] = 0
            if reason == FaultFlag.OUTSIDE:
                raise OutsideTableError("an index is out of range, or an integer divisor is 0")
            raise NotFiniteError
        if program.makes_all_outputs:
            return [*results.values()]
        return [self._result(each, values, arrays, results) for each in program.outputs]

    def _run_cancellable(self, team: int, number: int, at: int | None, arrays: int | None) -> int:
        began = 0
        for row in self._tables.cancellable_rows[number]:
            check_cancelled(self.program.plan.steps[self._tables.segments[row, 0]].operators[0], _CANCELLED)
            start = self._run_row(team, row, at, arrays)
            began = began or start
        return began

    def _run_row(self, team: int, row: int, at: int | None, arrays: int | None) -> int:
        """Run the kernels of a row of segments; return the clock before them if there is a trace ``at`` an address."""
        self._epoch += 1
        began: int = self._run(team, self._epoch << SEGMENT_BITS | row, at, arrays)
        return began

    def _run_reference(
        self, call: ReferenceCall, values: dict[str, Any], inputs: Sequence[Array], results: dict[int, Array]
    ) -> None:
        op = self.program.operators[call.operator]
        if op.layer is None:
            return
        # A value kept by name may refer to its operands after their memory is reused.
        is_kept = None in call.outputs
        operands = [
            self._value(operand.name, values) if region is None else self._operand(region, inputs, results, is_kept)
            for operand, region in zip(op.inputs, call.inputs, strict=True)
        ]
        try:
            answer = op.layer.forward(operands)
        except EngineError as error:
            raise error.at(op.where) from error.__cause__
        for operand, region, value in zip(op.outputs, call.outputs, computed_outputs(op, answer), strict=True):
            if region is None:
                values[operand.name] = np.asarray(value) if isinstance(value, np.generic) else value
            elif not isinstance(value, np.ndarray | np.generic) or not _fits(value, region):
                raise UnforeseenResultError(
                    "the result differs from the file's declaration", where=op.where, found=_kind(value)
                )
            else:
                np.copyto(self._array(region, inputs, results), np.asarray(value), casting="no")

    def _value(self, name: str, values: dict[str, Any]) -> Any:
        return values[name] if name in values else self.program.known[name]

    def _operand(self, region: Region, inputs: Sequence[Array], results: dict[int, Array], is_kept: bool) -> Array:
        array = self._array(region, inputs, results)
        array = array.copy() if is_kept else array
        array.flags.writeable = False
        return array

    def _array(self, region: Region, inputs: Sequence[Array], results: dict[int, Array]) -> Array:
        """Return the tensor of a region of the program, in this instance's memory."""
        block = self._block(region.address, inputs, results)
        return np.ndarray(region.shape, named_dtype(region.dtype), block, offset_of(region.address), region.strides)

    def _block(self, place: Address, inputs: Sequence[Array], results: dict[int, Array]) -> Array:
        space = space_of(place)
        if space is MemorySpace.ARENA:
            return self._arena.block
        if space is MemorySpace.CONSTANT:
            return self.program.plan.constants
        if space is MemorySpace.WEIGHT:
            return self.program.plan.weights
        array = (inputs if space is MemorySpace.INPUT else results)[port_of(place)]
        return array.reshape(-1).view(np.uint8)

    def _result(
        self, output: Region | str, values: dict[str, Any], inputs: Sequence[Array], results: dict[int, Array]
    ) -> Any:
        if isinstance(output, str):
            value = self._value(output, values)
            return value.copy() if isinstance(value, np.ndarray) else value
        if output.is_whole_output:
            return results[port_of(output.address)]
        if space_of(output.address) is MemorySpace.INPUT:  # a state that the run has appended to
            return self._array(output, inputs, results)
        return self._array(output, inputs, results).copy()


class TemplateInstances:
    """Instances of a template, which take the numbers of any set of sizes: one for each concurrent run.

    ``BoundInstance`` runs them.

    Args:
        program: the template with some set of sizes.
        make: makes an instance.

    Attributes:
        idle: instances that do not run; the one used last is last.
        is_closed: whether instances run without threads.
    """

    def __init__(self, program: Program, make: Callable[[Program], Instance]) -> None:
        self.program = program
        self._make = make
        self._made_s = time.monotonic()
        self._all: list[Instance] = []
        self.idle: list[Instance] = []
        self.is_closed = False

    @property
    def used_s(self) -> float:
        """Time of the last run, on time.monotonic()'s clock."""
        return max((each.used_s for each in self._all), default=self._made_s)

    @property
    def latest(self) -> Program:
        """The program that ran last."""
        return max(self._all, key=lambda each: each.used_s).program if self._all else self.program

    def make(self, program: Program) -> Instance:
        """Return another instance, for one more concurrent run."""
        instance = self._make(program)
        self._all.append(instance)
        return instance

    def close(self) -> None:
        """Dismiss the threads; current and later runs do without them."""
        self.is_closed = True
        for each in [*self.idle]:
            each.close()


class BoundInstance:
    """Program of a template for one set of sizes, which runs on the template's instances."""

    def __init__(self, program: Program, instances: TemplateInstances) -> None:
        self.program = program
        self._instances = instances

    def run(
        self, inputs: Sequence[Array], times: list[Clocked] | None = None, into: Mapping[int, Array] = NOWHERE
    ) -> list[Any]:
        """Return the graph's outputs; see ``Instance.run``."""
        program, instances = self.program, self._instances
        try:
            instance = instances.idle.pop()
        except IndexError:
            instance = instances.make(program)
        try:
            if instance.program is not program:
                instance.bind(program)
            return instance.run(inputs, times, into)
        finally:
            instances.idle.append(instance)
            if instances.is_closed:
                instances.close()


AnyInstance: TypeAlias = Instance | BoundInstance
"""Instance of a program, or of a template that other sizes use too."""


def _whole_state(part: Array) -> Array:
    """Return all memory of a state, of which a run is given the part in use."""
    return part if part.base is None else part.base


def _fits(value: Array | np.generic, region: Region) -> bool:
    return value.shape == region.shape and value.dtype == named_dtype(region.dtype)


def _kind(value: object) -> str:
    return str(spec_of(value)) if isinstance(value, np.ndarray | np.generic) else type(value).__name__


def _release_workers(crew: list[Workers]) -> None:
    for workers in crew:
        POOL.leave(workers)
