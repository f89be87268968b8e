"""From lowered steps to an executable: code, constants, addresses."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from engine.cancellation import Progress, cancellable, silent
from engine.compiler.addresses import Address, MemorySpace, address
from engine.compiler.assembly.dynamic_kernels import Call
from engine.compiler.assembly.memory import (
    MemoryPlan,
    find_lifetimes,
    plan_memory,
    plan_symbolic_memory,
    storages_of,
    with_borders_cleared,
)
from engine.compiler.assembly.objects import make_objects
from engine.compiler.codegen.memory_release import trim_heap
from engine.compiler.dynamic.template import Pool
from engine.compiler.executable import Buffer, Executable, NativeStep, NativeSteps, ReferenceCall, Region, Segment
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


Numbering: TypeAlias = Callable[[int], int]
"""Function from a number to what stands for it in an executable: itself, or its index in a template's pool."""

# Most kernels and calls of a program: memory planning compares all pairs.
PROGRAM_STEPS = 10_000
# The C library keeps freed weights: after this many bytes they are returned to the system.
_FREED_BYTES = 32 << 20
# Smaller tables do not get a file of their own.
_TABLE_BYTES = 4 << 20


class _Writer:
    """Writer of steps and tensors with their addresses.

    Args:
        starts: offset of every storage in its memory space.
    """

    def __init__(self, starts: Mapping[Storage, int], number: Numbering) -> None:
        self._starts, self.number = starts, number

    def address(self, storage: Storage, offset: int) -> Address:
        """Return the address of a byte of a storage."""
        is_outside = storage.space in (MemorySpace.INPUT, MemorySpace.OUTPUT)
        at = offset if is_outside else self._starts[storage] + offset
        return address(storage.space, max(storage.port, 0), self.number(at))

    def region(self, view: View | None) -> Region | None:
        """Return the tensor of a view; None without one."""
        if view is None:
            return None
        return Region(
            address=self.address(view.storage, view.offset),
            shape=tuple(map(self.number, view.shape)),
            strides=tuple(map(self.number, view.meta.strides)),
            dtype=view.dtype.name,
        )

    def native(self, step: KernelStep, call: Call) -> NativeStep:
        """Return a kernel."""
        pointers = (self.address(each.storage, each.offset) for each in step.pointers)
        numbers = (address(MemorySpace.NUMBER, 0, self.number(each)) for each in call.numbers)
        return NativeStep(
            function=call.function,
            kind=step.kernel.reported_kind,
            chunks=self.number(step.kernel.chunks),
            arguments=(*pointers, *numbers),
            operators=step.operators,
            flops=self.number(step.kernel.flops),
            bytes=self.number(step.bytes),
            is_dealt=is_dealt(step),
        )

    def call(self, step: ReferenceStep) -> ReferenceCall:
        """Return an operator that its layer computes."""
        inputs, outputs = (tuple(map(self.region, views)) for views in (step.inputs, step.outputs))
        return ReferenceCall(operator=step.operator.name, inputs=inputs, outputs=outputs)

    def segments(self, steps: Sequence[Step]) -> list[Segment]:
        """Return the kernels up to each call, and those after the last call."""
        segments: list[Segment] = []
        first = index = 0
        for step in steps:
            if isinstance(step, KernelStep):
                index += 1
                continue
            if index > first:
                segments.append(Segment(first=first, last=index))
            segments.append(Segment(first=index, last=index, call=self.call(step)))
            first = index
        if index > first:
            segments.append(Segment(first=first, last=index))
        return segments

    def buffers(self, memory: MemoryPlan, views: Mapping[str, View]) -> tuple[Buffer, ...]:
        """Return the tensors of the arena with offsets and lifetimes.

        Args:
            views: view of every operand, by name.
        """
        names: dict[Storage, tuple[str, ...]] = {}
        for name, view in views.items():
            names[view.storage] = *names.get(view.storage, ()), name
        return tuple(
            Buffer(
                offset=self.number(memory.offsets[each]),
                bytes=self.number(each.bytes),
                first=life.first,
                last=life.last,
                operands=names.get(each, ()),
            )
            for each, life in memory.lifetimes.items()
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


def make_executable(
    lowering: Lowering,
    passes: Sequence[PassReport] = (),
    progress: Progress = silent,
    cores: int = 1,
    *,
    weights: Weights | None = None,
    pool: Pool | None = None,
) -> Executable:
    """Generate and assemble the kernels of a lowered graph, pack its constants, plan its memory.

    Args:
        passes: reports of the graph passes.
        progress: called for every kernel.
        cores: number of kernels LLVM compiles at once; 0 for background priority.
        weights: shared by all programs of the graph; None where each program has its own.
        pool: of a graph lowered with symbolic sizes: takes all numbers, and the executable has their indices.

    Raises:
        CompileError: the program would be too large.
        RefusedError: some kernels are too large or not valid.
    """
    kept = [view for name in lowering.results if (view := _output(lowering, name)) is not None]
    if len(lowering.steps) > PROGRAM_STEPS:
        raise CompileError("the program would have too many steps", found=len(lowering.steps), expected=PROGRAM_STEPS)
    is_dynamic = pool is not None
    plan = plan_symbolic_memory if is_dynamic else plan_memory
    memory = plan(lowering.steps, kept, lowering.host.memory)
    steps = with_borders_cleared(lowering.steps, memory.unclean, lowering.host, is_apart=is_dynamic)
    if len(steps) > len(lowering.steps):
        memory = replace(memory, lifetimes=find_lifetimes(steps, kept))
    objects = make_objects(steps, lowering.host, progress, cores, is_dynamic=is_dynamic)
    constants, offsets, tables_at = pack_constants(steps, kept)
    shared, shared_offsets = pack_weights(steps, kept, weights)
    number: Numbering = (lambda each: each) if pool is None else pool.index
    writer = _Writer({**memory.offsets, **offsets, **shared_offsets}, number)
    kernels = [each for each in steps if isinstance(each, KernelStep)]
    fault_flag = memory.offsets.get(lowering.fault_flag.storage)
    return Executable(
        code=tuple(objects.code),
        constants=constants,
        weights=shared,
        steps=NativeSteps.of([writer.native(each, objects.call_of(each.kernel)) for each in kernels]),
        segments=tuple(writer.segments(steps)),
        arena_bytes=number(memory.bytes),
        outputs=tuple(writer.region(_output(lowering, each)) or str(each) for each in lowering.results),
        reasons=dict(lowering.reasons),
        clean=tuple((number(first), number(last)) for first, last in memory.clean),
        fault_flag=None if fault_flag is None else number(fault_flag),
        tables_at=tables_at,
        operators=tuple(op.name for op in lowering.operators),
        buffers=writer.buffers(memory, lowering.views),
        passes=tuple(passes),
    )


def _output(lowering: Lowering, output: View | str) -> View | None:
    return lowering.views.get(output) if isinstance(output, str) else output


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
