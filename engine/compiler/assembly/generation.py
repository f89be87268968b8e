"""From lowered steps to a blueprint: their code, their constants one after the other, and the address of everything."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from engine.compiler.assembly.clearing import with_borders_cleared
from engine.compiler.assembly.memory import Lifetime, MemoryPlan, find_lifetimes, plan_memory, storages_of
from engine.compiler.assembly.objects import make_objects
from engine.compiler.assembly.opening import Call
from engine.compiler.blueprint import (
    Address,
    Blueprint,
    Buffer,
    Home,
    NativeStep,
    ReferenceCall,
    Region,
    Segment,
    address,
)
from engine.compiler.codegen.leftovers import give_back_freed
from engine.compiler.lowering import Lowering
from engine.compiler.lowering.steps import KernelStep, ReferenceStep, Step
from engine.compiler.runtime.allocation import aligned_bytes, allocate
from engine.compiler.storage import ALIGNMENT, Storage, View
from engine.compiler.weights import Weights
from engine.errors import CompileError
from engine.passes import PassReport
from engine.progress import Progress, silent
from engine.stopping import wanted
from engine.tensor import Array

# Kernels and calls of a program, for laying out memory looks at each with each.
PROGRAM_STEPS = 10_000
# The C library keeps what was packed when it is freed: after so much of it the system gets it back.
_FREED_BYTES = 32 << 20
# Smaller tables are not worth a file.
_TABLE_BYTES = 4 << 20
# A kernel that has so many times as many weights to read as all else waits for them and nothing else.
_MOSTLY = 2


def make_blueprint(
    lowering: Lowering,
    passes: Sequence[PassReport] = (),
    progress: Progress = silent,
    cores: int = 1,
    *,
    weights: Weights | None = None,
    is_open: bool = False,
    is_known: bool = False,
) -> Blueprint:
    """Generate and assemble the kernels of a lowered graph, pack its constants, lay out its memory.

    Args:
        passes: what was done to the graph before.
        progress: told of every kernel.
        cores: LLVM may work on so many of them at once; 0 for what others leave of one core.
        weights: of all programs of the graph; None where each has its own.
        is_open: whether kernels read sizes when they run, where they can.
        is_known: whether only code is wanted that was made before.

    Raises:
        CompileError: the program would be too large.
        NotYetMadeError: there is no code for some of its kernels.
        RefusedError: some of its kernels would, or they are not valid.
    """
    kept = [view for name in lowering.results if (view := _output(lowering, name)) is not None]
    if len(lowering.steps) > PROGRAM_STEPS:
        raise CompileError("the program would have too many steps", found=len(lowering.steps), expected=PROGRAM_STEPS)
    memory = plan_memory(lowering.steps, kept, lowering.host.memory)
    steps = with_borders_cleared(lowering.steps, memory.unclean, lowering.host, is_apart=is_open)
    lifetimes = memory.lifetimes if len(steps) == len(lowering.steps) else find_lifetimes(steps, kept)
    objects = make_objects(steps, lowering.host, progress, cores, is_open=is_open, is_known=is_known)
    lowering.made = objects.made
    constants, places, tables_at = _constants(steps, kept)
    shared, shared_places = _weights(steps, kept, weights)
    starts = {**memory.offsets, **places, **shared_places}
    return Blueprint(
        code=tuple(objects.code),
        constants=constants,
        weights=shared,
        steps=tuple(
            _native(step, starts, objects.call_of(step.kernel)) for step in steps if isinstance(step, KernelStep)
        ),
        segments=tuple(_segments(steps, starts)),
        arena_bytes=memory.bytes,
        outputs=tuple(_result(lowering, each, starts) for each in lowering.results),
        reasons=dict(lowering.reasons),
        alarm=memory.offsets.get(lowering.alarm.storage),
        tables_at=tables_at,
        operators=tuple(op.name for op in lowering.operators),
        buffers=tuple(_buffers(lifetimes, lowering.views, memory)),
        passes=tuple(passes),
    )


def _output(lowering: Lowering, output: View | str) -> View | None:
    return lowering.views.get(output) if isinstance(output, str) else output


def _result(lowering: Lowering, output: View | str, starts: Mapping[Storage, int]) -> Region | str:
    view = _output(lowering, output)
    return _region(view, starts) if view is not None else str(output)


def _constants(steps: Sequence[Step], kept: Sequence[View]) -> tuple[Array, dict[Storage, int], int | None]:
    """All constant storages one after the other, each aligned; where each begins, and where tables do, in bytes.

    Args:
        kept: views that are read after the last step, some of constants that no step reads.
    """
    is_table: dict[Storage, bool] = {view.storage: False for view in kept if view.storage.home is Home.CONSTANT}
    for step in wanted(steps):
        reads_few = isinstance(step, KernelStep) and step.kernel.reads_few
        for storage in storages_of(step):
            if storage.home is Home.CONSTANT:
                is_table[storage] = is_table.get(storage, storage.bytes >= _TABLE_BYTES) and reads_few
    places: dict[Storage, int] = {}
    end, tables_at = 0, None
    for storage in sorted(is_table, key=is_table.__getitem__):
        if is_table[storage] and tables_at is None:
            tables_at = end = -(-end // mmap.PAGESIZE) * mmap.PAGESIZE
        places[storage] = end
        end += -(-storage.bytes // ALIGNMENT) * ALIGNMENT
    block = allocate(end) if end else aligned_bytes(0)
    freed = 0
    for storage, at in wanted(places.items()):
        if storage.data is not None:
            block[at : at + storage.bytes] = storage.data.view(np.uint8)
            storage.data = None  # or there would be all of them twice
            freed += storage.bytes
            if freed > _FREED_BYTES:
                give_back_freed()
                freed = 0
    return block, places, tables_at


def _weights(steps: Sequence[Step], kept: Sequence[View], weights: Weights | None) -> tuple[Array, dict[Storage, int]]:
    """The block that programs of the graph share, and where in it lies what these steps use, in bytes."""
    if weights is None:
        return np.empty(0, np.uint8), {}
    storages = [*(each for step in steps for each in storages_of(step)), *(view.storage for view in kept)]
    return weights.lay_out(dict.fromkeys(each for each in storages if each.home is Home.WEIGHT).keys())


def _address(storage: Storage, offset: int, starts: Mapping[Storage, int]) -> Address:
    start = 0 if storage.home in (Home.INPUT, Home.OUTPUT) else starts[storage]
    return address(storage.home, max(storage.port, 0), start + offset)


def _region(view: View, starts: Mapping[Storage, int]) -> Region:
    at = _address(view.storage, view.offset, starts)
    return Region(address=at, shape=view.shape, strides=view.phantom.strides, dtype=view.dtype.name)


def _native(step: KernelStep, starts: Mapping[Storage, int], call: Call) -> NativeStep:
    pointers = (_address(each.storage, each.offset, starts) for each in step.pointers)
    numbers = (address(Home.NUMBER, 0, each) for each in call.numbers)
    return NativeStep(
        function=call.function,
        kind=step.kernel.reported_kind,
        chunks=step.kernel.chunks,
        arguments=(*pointers, *numbers),
        operators=step.operators,
        flops=step.kernel.flops,
        bytes=step.bytes,
        is_dealt=_is_dealt(step),
    )


def _is_dealt(step: KernelStep) -> bool:
    """Whether threads should take a kernel's chunks in turn.

    Usually a thread that has consecutive chunks finds more of what it reads in its own cache. Where there is little but
    weights to read, more than a cache holds, chunks beside each other read the same weights or ones that lie beside
    each other: threads that have these at the same time read memory only once, and in order.
    """
    stored = {each.storage for each in step.pointers if each.storage.home in (Home.CONSTANT, Home.WEIGHT)}
    weights = 0 if step.kernel.reads_few else sum(each.bytes for each in stored)
    return weights >= step.kernel.host.memory.second_bytes and weights > _MOSTLY * (step.bytes - weights)


def _buffers(lifetimes: Mapping[Storage, Lifetime], views: Mapping[str, View], memory: MemoryPlan) -> Iterator[Buffer]:
    """What lies where and when.

    Args:
        lifetimes: with borders' clearing counted as a step.
    """
    names: dict[Storage, list[str]] = {}
    for name, view in views.items():
        names.setdefault(view.storage, []).append(name)
    for storage, life in lifetimes.items():
        operands = tuple(names.get(storage, ()))
        at = memory.offsets[storage]
        yield Buffer(offset=at, bytes=storage.bytes, first=life.first, last=life.last, operands=operands)


def _segments(steps: Sequence[Step], starts: Mapping[Storage, int]) -> list[Segment]:
    segments: list[Segment] = []
    first = index = 0
    for step in steps:
        if isinstance(step, KernelStep):
            index += 1
            continue
        if index > first:
            segments.append(Segment(first=first, last=index))
        segments.append(Segment(first=index, last=index, call=_call(step, starts)))
        first = index
    if index > first:
        segments.append(Segment(first=first, last=index))
    return segments


def _call(step: ReferenceStep, starts: Mapping[Storage, int]) -> ReferenceCall:
    return ReferenceCall(
        operator=step.operator.name,
        inputs=tuple(None if view is None else _region(view, starts) for view in step.inputs),
        outputs=tuple(None if view is None else _region(view, starts) for view in step.outputs),
    )
