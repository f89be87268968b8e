"""From lowered steps to an executable: code, constants, addresses."""

from __future__ import annotations

import mmap
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from engine.cancellation import Progress, cancellable, silent
from engine.compiler.addresses import Address, MemorySpace, address
from engine.compiler.assembly.dynamic_kernels import Call
from engine.compiler.assembly.memory import MemoryPlan, find_lifetimes, plan_memory, storages_of, with_borders_cleared
from engine.compiler.assembly.objects import Objects, make_objects
from engine.compiler.codegen.memory_release import trim_heap
from engine.compiler.executable import Buffers, Executable, NativeStep, NativeSteps, ReferenceCall, Region, Row, Segment
from engine.compiler.lowering import Lowering
from engine.compiler.lowering.steps import KernelStep, ReferenceStep, Step
from engine.compiler.runtime.memory import aligned_bytes, allocate
from engine.compiler.storage import ALIGNMENT, Storage, View
from engine.compiler.weights import Weights
from engine.errors import CompileError
from engine.ir.dims import hint
from engine.passes import PassReport
from engine.tensor import Array

# A kernel with this many times as many bytes of weights as of all else is limited by reading weights.
_MOSTLY = 2


def address_in(storage: Storage, offset: int, starts: Mapping[Storage, int]) -> Address:
    """Return the address of a byte of a storage.

    Args:
        starts: offset of every storage in its memory space.
    """
    return address(storage.space, max(storage.port, 0), offset_in(storage, offset, starts))


def offset_in(storage: Storage, offset: int, starts: Mapping[Storage, int]) -> int:
    """Return the offset of a byte of a storage in its memory space; arguments as for ``address_in``."""
    return offset if storage.space in (MemorySpace.INPUT, MemorySpace.OUTPUT) else starts[storage] + offset


def region_of(view: View, starts: Mapping[Storage, int]) -> Region:
    """Return the tensor of a view with its address.

    Args:
        starts: offset of every storage in its memory space.
    """
    at = address_in(view.storage, view.offset, starts)
    return Region(address=at, shape=view.shape, strides=view.meta.strides, dtype=view.dtype.name)


def _native(step: KernelStep, starts: Mapping[Storage, int], call: Call) -> NativeStep:
    pointers = (address_in(each.storage, each.offset, starts) for each in step.pointers)
    numbers = (address(MemorySpace.NUMBER, 0, each) for each in call.numbers)
    return NativeStep(
        function=call.function,
        kind=step.kernel.reported_kind,
        chunks=step.kernel.chunks,
        arguments=(*pointers, *numbers),
        operators=step.operators,
        flops=step.kernel.flops,
        bytes=step.bytes,
        is_dealt=is_dealt(step),
    )


def is_dealt(step: KernelStep) -> bool:
    """Return whether threads should take a kernel's chunks alternately instead of in contiguous blocks.

    Usually a thread with consecutive chunks finds more of its input in its own cache. A kernel that mostly reads
    weights, more than a cache holds, is different: neighbouring chunks read the same or adjacent weights, and threads
    that process them at the same time read memory once, and in order.
    """
    stored = {
        each.storage for each in step.pointers if each.storage.space in (MemorySpace.CONSTANT, MemorySpace.WEIGHT)
    }
    weights = 0 if step.kernel.reads_sparsely else sum(each.bytes for each in stored)
    others = hint(step.bytes) - weights
    return weights >= step.kernel.host.memory.second_bytes and weights > _MOSTLY * others


def native_steps(steps: Sequence[Step], starts: Mapping[Storage, int], objects: Objects) -> NativeSteps:
    """Return the kernels among some steps with all addresses; arguments as for ``region_of``."""
    kernels = [each for each in steps if isinstance(each, KernelStep)]
    return NativeSteps.of([_native(each, starts, objects.call_of(each.kernel)) for each in kernels])


def buffer_rows(memory: MemoryPlan, views: Mapping[str, View]) -> tuple[Row, ...]:
    """Return the tensors of the arena with offsets and lifetimes.

    Args:
        views: view of every operand, by name.
    """
    names: dict[Storage, tuple[str, ...]] = {}
    for name, view in views.items():
        names[view.storage] = *names.get(view.storage, ()), name
    return tuple(
        (memory.offsets[each], each.bytes, life.first, life.last, names.get(each, ()))
        for each, life in memory.lifetimes.items()
    )


# Most kernels and calls of a program: memory planning compares all pairs.
PROGRAM_STEPS = 10_000
# The C library keeps freed weights: after this many bytes they are returned to the system.
_FREED_BYTES = 32 << 20
# Smaller tables do not get a file of their own.
_TABLE_BYTES = 4 << 20


def make_executable(
    lowering: Lowering,
    passes: Sequence[PassReport] = (),
    progress: Progress = silent,
    cores: int = 1,
    *,
    weights: Weights | None = None,
) -> Executable:
    """Generate and assemble the kernels of a lowered graph, pack its constants, plan its memory.

    Args:
        passes: reports of the graph passes.
        progress: called for every kernel.
        cores: number of kernels LLVM compiles at once; 0 for background priority.
        weights: shared by all programs of the graph; None where each program has its own.

    Raises:
        CompileError: the program would be too large.
        RefusedError: some kernels are too large or not valid.
    """
    kept = [view for name in lowering.results if (view := _output(lowering, name)) is not None]
    if len(lowering.steps) > PROGRAM_STEPS:
        raise CompileError("the program would have too many steps", found=len(lowering.steps), expected=PROGRAM_STEPS)
    memory = plan_memory(lowering.steps, kept, lowering.host.memory)
    steps = with_borders_cleared(lowering.steps, memory.unclean, lowering.host)
    if len(steps) > len(lowering.steps):
        memory = replace(memory, lifetimes=find_lifetimes(steps, kept))
    objects = make_objects(steps, lowering.host, progress, cores)
    constants, offsets, tables_at = pack_constants(steps, kept)
    shared, shared_offsets = pack_weights(steps, kept, weights)
    starts = {**memory.offsets, **offsets, **shared_offsets}
    native = native_steps(steps, starts, objects)
    return Executable(
        code=tuple(objects.code),
        constants=constants,
        weights=shared,
        steps=native,
        segments=tuple(_segments(steps, len(native), starts)),
        arena_bytes=memory.bytes,
        outputs=tuple(_result(lowering, each, starts) for each in lowering.results),
        reasons=dict(lowering.reasons),
        clean=memory.clean,
        fault_flag=memory.offsets.get(lowering.fault_flag.storage),
        tables_at=tables_at,
        operators=tuple(op.name for op in lowering.operators),
        buffers=Buffers(buffer_rows(memory, lowering.views)),
        passes=tuple(passes),
    )


def _output(lowering: Lowering, output: View | str) -> View | None:
    return lowering.views.get(output) if isinstance(output, str) else output


def _result(lowering: Lowering, output: View | str, starts: Mapping[Storage, int]) -> Region | str:
    view = _output(lowering, output)
    return region_of(view, starts) if view is not None else str(output)


def pack_constants(steps: Sequence[Step], kept: Sequence[View]) -> tuple[Array, dict[Storage, int], int | None]:
    """Return all constant storages in one aligned block, the offset of each, and the offset of tables, in bytes.

    Args:
        kept: views that are read after the last step, some of constants that no step reads.
    """
    is_table: dict[Storage, bool] = {view.storage: False for view in kept if view.storage.space is MemorySpace.CONSTANT}
    for step in cancellable(steps):
        reads_sparsely = isinstance(step, KernelStep) and step.kernel.reads_sparsely
        for storage in storages_of(step):
            if storage.space is MemorySpace.CONSTANT:
                is_table[storage] = is_table.get(storage, storage.bytes >= _TABLE_BYTES) and reads_sparsely
    offsets: dict[Storage, int] = {}
    end, tables_at = 0, None
    for storage in sorted(is_table, key=is_table.__getitem__):
        if is_table[storage] and tables_at is None:
            tables_at = end = -(-end // mmap.PAGESIZE) * mmap.PAGESIZE
        offsets[storage] = end
        end += -(-storage.bytes // ALIGNMENT) * ALIGNMENT
    block = allocate(end) if end else aligned_bytes(0)
    freed = 0
    for storage, at in cancellable(offsets.items()):
        if storage.data is not None:
            block[at : at + storage.bytes] = storage.data.view(np.uint8)
            storage.data = None  # or all constants would be in memory twice
            freed += storage.bytes
            if freed > _FREED_BYTES:
                trim_heap()
                freed = 0
    return block, offsets, tables_at


def pack_weights(
    steps: Sequence[Step], kept: Sequence[View], weights: Weights | None
) -> tuple[Array, dict[Storage, int]]:
    """Return the block of weights shared by programs of the graph, and the offsets used by these steps, in bytes."""
    if weights is None:
        return np.empty(0, np.uint8), {}
    storages = [*(each for step in steps for each in storages_of(step)), *(view.storage for view in kept)]
    return weights.lay_out(dict.fromkeys(each for each in storages if each.space is MemorySpace.WEIGHT).keys())


def _segments(steps: Sequence[Step], count: int, starts: Mapping[Storage, int]) -> list[Segment]:
    """Return the kernels up to each call and those after the last call; ``count`` is the number of kernels."""
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
    if count > first:
        segments.append(Segment(first=first, last=count))
    return segments


def _call(step: ReferenceStep, starts: Mapping[Storage, int]) -> ReferenceCall:
    return ReferenceCall(
        operator=step.operator.name,
        inputs=tuple(None if view is None else region_of(view, starts) for view in step.inputs),
        outputs=tuple(None if view is None else region_of(view, starts) for view in step.outputs),
    )
