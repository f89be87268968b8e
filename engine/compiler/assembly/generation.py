"""From lowered steps to a blueprint: their code, their constants one after the other, and the address of everything."""

from __future__ import annotations

import mmap
from collections.abc import Mapping, Sequence

import numpy as np

from engine.compiler.assembly.memory import storages_of
from engine.compiler.assembly.objects import make_objects
from engine.compiler.assembly.parts import keep_endings, parts_of
from engine.compiler.assembly.pieces import buffers_of, pieces_of, region_of
from engine.compiler.blueprint import Blueprint, ReferenceCall, Region, Segment
from engine.compiler.codegen.leftovers import give_back_freed
from engine.compiler.lowering import Lowering
from engine.compiler.lowering.steps import KernelStep, ReferenceStep, Step
from engine.compiler.native import NativeSteps
from engine.compiler.places import Home
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
    parts = parts_of(lowering, kept, is_open=is_open)
    steps = [step for part in parts for step in part.steps]
    objects = make_objects(steps, lowering.host, progress, cores, is_open=is_open, is_known=is_known)
    lowering.made = objects.made
    constants, places, tables_at = _constants(steps, kept)
    shared, shared_places = _weights(steps, kept, weights)
    offsets = {each: at for part in parts for each, at in part.memory.offsets.items()}
    starts = {**offsets, **places, **shared_places}
    rest = lowering.rest
    alarm = offsets.get(lowering.alarm.storage, None if rest is None else rest.ending.alarm)
    outputs = [_result(lowering, each, starts) for each in lowering.results]
    own = pieces_of(lowering, parts, starts, objects, outputs)
    keep_endings(lowering, parts, own)
    after = () if rest is None else rest.ending.pieces
    pieces = [*own, *after]
    native = NativeSteps.joined([piece.steps for piece in pieces])
    return Blueprint(
        code=tuple(dict.fromkeys([*objects.code, *(each for piece in after for each in piece.code)])),
        constants=constants,
        weights=shared,
        steps=native,
        segments=tuple(_segments(steps, len(native), starts)),
        arena_bytes=parts[0].memory.bytes,
        outputs=tuple(pieces[-1].outputs),
        reasons=dict(lowering.reasons),
        clean=tuple(each for piece in pieces for each in piece.clean),
        alarm=alarm,
        tables_at=tables_at,
        operators=tuple(op.name for op in lowering.operators),
        buffers=buffers_of(pieces),
        passes=tuple(passes),
    )


def _output(lowering: Lowering, output: View | str) -> View | None:
    return lowering.views.get(output) if isinstance(output, str) else output


def _result(lowering: Lowering, output: View | str, starts: Mapping[Storage, int]) -> Region | str:
    view = _output(lowering, output)
    return region_of(view, starts) if view is not None else str(output)


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


def _segments(steps: Sequence[Step], count: int, starts: Mapping[Storage, int]) -> list[Segment]:
    """Kernels up to each call, and those after the last, of which there are so many in all."""
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
