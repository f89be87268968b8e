"""From steps lowered with symbolic sizes to a template: code, constants, addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from sys import intern

import numpy as np

from engine.cancellation import Progress
from engine.compiler.addresses import MemorySpace, block_of
from engine.compiler.assembly.generation import (
    PROGRAM_STEPS,
    buffer_rows,
    is_dealt,
    offset_in,
    pack_constants,
    pack_weights,
)
from engine.compiler.assembly.memory import MemoryPlan, find_lifetimes, plan_symbolic_memory, with_borders_cleared
from engine.compiler.assembly.objects import Objects, make_objects
from engine.compiler.dynamic.template import Pool, SymbolicCall, SymbolicRegion, SymbolicSteps, Template
from engine.compiler.executable import Row
from engine.compiler.lowering import Lowering
from engine.compiler.lowering.steps import KernelStep, ReferenceStep, Step
from engine.compiler.storage import Storage, View
from engine.compiler.weights import Weights
from engine.errors import CompileError
from engine.graph.symbolic_inputs import SizesOf
from engine.ir.dims import ShapeEnv
from engine.ir.tables import Table
from engine.passes import PassReport
from engine.tensor import TensorSpec


def make_template(
    lowering: Lowering,
    env: ShapeEnv,
    specs: Sequence[TensorSpec],
    passes: Sequence[PassReport],
    progress: Progress,
    cores: int,
    weights: Weights | None,
) -> Template:
    """Generate and assemble the kernels of a graph lowered with symbolic sizes.

    Args:
        env, specs: the symbolic sizes, and the specs of inputs over them.
        passes, progress, cores, weights: as for ``make_executable``.

    Raises:
        CompileError: the program would be too large.
        RefusedError: some kernels are too large or not valid.
    """
    if len(lowering.steps) > PROGRAM_STEPS:
        raise CompileError("the program would have too many steps", found=len(lowering.steps), expected=PROGRAM_STEPS)
    kept = [view for each in lowering.results if (view := _view(lowering, each)) is not None]
    memory = plan_symbolic_memory(lowering.steps, kept, lowering.host.memory)
    steps = with_borders_cleared(lowering.steps, memory.unclean, lowering.host, is_apart=True)
    objects = make_objects(steps, lowering.host, progress, cores, is_dynamic=True)
    constants, offsets, tables_at = pack_constants(steps, kept)
    shared, shared_offsets = pack_weights(steps, kept, weights)
    writer = _Writer(lowering, {**memory.offsets, **offsets, **shared_offsets})
    return Template(
        env=env,
        sizes=SizesOf(env, specs),
        steps=writer.steps(steps, objects),
        segments=tuple(writer.segments(steps)),
        arena_bytes=writer.pool.index(memory.bytes),
        fault_flag=writer.optional(memory.offsets.get(lowering.fault_flag.storage)),
        clean=tuple((writer.pool.index(first), writer.pool.index(last)) for first, last in memory.clean),
        outputs=tuple(writer.output(each) for each in lowering.results),
        buffers=tuple(writer.buffers(steps, kept, memory)),
        table=Table(env, writer.pool.values),
        code=tuple(objects.code),
        constants=constants,
        weights=shared,
        tables_at=tables_at,
        reasons=dict(lowering.reasons),
        operators=tuple(op.name for op in lowering.operators),
        passes=tuple(passes),
    )


def _view(lowering: Lowering, output: View | str) -> View | None:
    return lowering.views.get(output) if isinstance(output, str) else output


def _block(storage: Storage) -> int:
    return block_of(storage.space, max(storage.port, 0))


class _Writer:
    """Writer of steps whose symbolic numbers are indices into a pool.

    Args:
        starts: offset of every storage in its memory space.
    """

    def __init__(self, lowering: Lowering, starts: Mapping[Storage, int]) -> None:
        self.pool = Pool()
        self._lowering, self._starts = lowering, starts

    def optional(self, number: int | None) -> int | None:
        """Return the index of a number that may be missing."""
        return None if number is None else self.pool.index(number)

    def region(self, view: View) -> SymbolicRegion:
        """Return the tensor of a view."""
        return SymbolicRegion(
            block=_block(view.storage),
            offset=self.pool.index(offset_in(view.storage, view.offset, self._starts)),
            shape=tuple(map(self.pool.index, view.shape)),
            strides=tuple(map(self.pool.index, view.meta.strides)),
            dtype=view.dtype.name,
        )

    def output(self, output: View | str) -> SymbolicRegion | str:
        """Return the region of an output, or the name of the operand whose value is returned."""
        view = _view(self._lowering, output)
        return str(output) if view is None else self.region(view)

    def steps(self, steps: Sequence[Step], objects: Objects) -> SymbolicSteps:
        """Return the kernels among some steps."""
        kernels = [each for each in steps if isinstance(each, KernelStep)]
        calls = [objects.call_of(each.kernel) for each in kernels]
        arguments = [
            [
                *((_block(each.storage), offset_in(each.storage, each.offset, self._starts)) for each in step.pointers),
                *((block_of(MemorySpace.NUMBER, 0), number) for number in call.numbers),
            ]
            for step, call in zip(kernels, calls, strict=True)
        ]
        counts = [(0, 0), *((len(row), len(step.operators)) for row, step in zip(arguments, kernels, strict=True))]
        return SymbolicSteps(
            functions=tuple(intern(call.function) for call in calls),
            kinds=tuple(intern(step.kernel.reported_kind) for step in kernels),
            operators=tuple(intern(name) for step in kernels for name in step.operators),
            is_dealt=np.array([is_dealt(step) for step in kernels], bool),
            ends=np.cumsum(counts, axis=0, dtype=np.int32),
            chunks=self.pool.indices([step.kernel.chunks for step in kernels]),
            flops=self.pool.indices([step.kernel.flops for step in kernels]),
            bytes=self.pool.indices([step.bytes for step in kernels]),
            offsets=self.pool.indices([offset for row in arguments for _, offset in row]),
            blocks=np.array([block for row in arguments for block, _ in row], np.int64),
        )

    def segments(self, steps: Sequence[Step]) -> list[tuple[int, int, SymbolicCall | None]]:
        """Return the kernels up to each call, and those after the last call."""
        found: list[tuple[int, int, SymbolicCall | None]] = []
        first = index = 0
        for step in steps:
            if isinstance(step, KernelStep):
                index += 1
                continue
            if index > first:
                found.append((first, index, None))
            found.append((index, index, self._call(step)))
            first = index
        if index > first:
            found.append((first, index, None))
        return found

    def _call(self, step: ReferenceStep) -> SymbolicCall:
        return SymbolicCall(
            operator=step.operator.name,
            inputs=tuple(None if view is None else self.region(view) for view in step.inputs),
            outputs=tuple(None if view is None else self.region(view) for view in step.outputs),
        )

    def buffers(self, steps: Sequence[Step], kept: Sequence[View], memory: MemoryPlan) -> list[Row]:
        """Return the tensors of the arena with offsets and lifetimes."""
        memory = replace(memory, lifetimes=find_lifetimes(steps, kept))
        index = self.pool.index
        rows = buffer_rows(memory, self._lowering.views)
        return [(index(at), index(size), first, last, names) for at, size, first, last, names in rows]
