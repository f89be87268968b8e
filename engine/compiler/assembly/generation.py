"""From lowered steps to a blueprint: generates and assembles kernels, packs constants, lays out memory."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import numpy as np

from engine.compiler.assembly.clearing import with_borders_cleared
from engine.compiler.assembly.memory import plan_memory, storages_of
from engine.compiler.blueprint import Address, Blueprint, Home, NativeStep, ReferenceCall, Region, Segment
from engine.compiler.codegen import object_code
from engine.compiler.codegen.host import Host
from engine.compiler.codegen.ir import Module, TooLargeError
from engine.compiler.kernels.kernel import Kernel
from engine.compiler.lowering import Lowering
from engine.compiler.lowering.steps import KernelStep, ReferenceStep, Step
from engine.compiler.runtime.allocation import aligned_bytes
from engine.compiler.runtime.team import team_code
from engine.compiler.storage import ALIGNMENT, Storage, View
from engine.errors import CompileError
from engine.passes import PassReport
from engine.progress import Progress, silent
from engine.stopping import wanted, wanted_quick
from engine.tensor import Array

# Instructions of all kernels of a program: some minutes of LLVM at worst. Networks of 300 operators have a tenth of it.
PROGRAM_OPERATIONS = 2_000_000

# Kernels and calls of a program, for laying out memory looks at each with each.
PROGRAM_STEPS = 10_000

_log = logging.getLogger("pnnx_serve.engine")


class RefusedError(Exception):
    """Kernels that cannot be made: lowered again without them, the rest of the graph can be.

    Attributes:
        reasons: operator -> why it needs to be left to the reference.
    """

    def __init__(self, reasons: dict[str, str]) -> None:
        super().__init__(", ".join(f"{name}: {reason}" for name, reason in reasons.items()))
        self.reasons = reasons


def make_blueprint(lowering: Lowering, passes: Sequence[PassReport] = (), progress: Progress = silent) -> Blueprint:
    """Generate and assemble the kernels of a lowered graph, pack its constants, lay out its memory.

    Args:
        passes: what was done to the graph before.
        progress: told of every kernel.

    Raises:
        CompileError: the program would be too large.
        RefusedError: some of its kernels would, or they are not valid.
    """
    kept = [view for name in lowering.results if (view := _output(lowering, name)) is not None]
    if len(lowering.steps) > PROGRAM_STEPS:
        raise CompileError("the program would have too many steps", found=len(lowering.steps), expected=PROGRAM_STEPS)
    memory = plan_memory(lowering.steps, kept)
    steps = with_borders_cleared(lowering.steps, memory.unclean, lowering.host)
    code = _code(steps, lowering.host, progress)
    constants, places = _constants(steps)
    starts = {**memory.offsets, **places}
    return Blueprint(
        code=tuple(code),
        constants=constants,
        steps=tuple(_native(step, starts) for step in steps if isinstance(step, KernelStep)),
        segments=tuple(_segments(steps, starts)),
        arena_bytes=memory.bytes,
        outputs=tuple(_result(lowering, each, starts) for each in lowering.results),
        reasons=dict(lowering.reasons),
        alarm=memory.offsets.get(lowering.alarm.storage),
        operators=tuple(op.name for op in lowering.operators),
        passes=tuple(passes),
    )


def _code(steps: Sequence[Step], host: Host, progress: Progress) -> list[bytes]:
    """An object for the team and one for each kernel: all in one would take LLVM longer, without a sign of progress."""
    first: dict[str, KernelStep] = {}
    for step in wanted_quick(steps):
        if isinstance(step, KernelStep):
            first.setdefault(step.kernel.name, step)
    objects, refused, left = [object_code.assemble(team_code(host), host)], dict[str, str](), PROGRAM_OPERATIONS
    for number, step in enumerate(first.values()):
        progress("assembling", number, len(first))
        if left < 0:
            raise CompileError("the program would be too large", expected=f"{PROGRAM_OPERATIONS:,} instructions")
        try:
            module = _module(step.kernel, host)
            left -= module.operations
            objects.append(_object(step.kernel, module, host))
        except _NotMadeError as error:
            refused[step.operators[0]] = str(error)
    if refused:
        raise RefusedError(refused)
    return objects


class _NotMadeError(Exception):
    """A kernel that cannot be written."""


def _module(kernel: Kernel, host: Host) -> Module:
    module = Module()
    try:
        kernel.emit(module)
    except TooLargeError as error:
        raise _NotMadeError(str(error)) from None
    except Exception as exc:  # a defect of a generator costs speed, not the answer
        _log.warning("%s: it cannot be written: %s: %s", kernel.name, type(exc).__name__, exc)
        raise _NotMadeError(f"its kernel failed with {type(exc).__name__}") from exc
    return module


def _object(kernel: Kernel, module: Module, host: Host) -> bytes:
    try:
        return object_code.assemble(str(module), host)
    except CompileError as error:
        _log.warning("%s: %s", kernel.name, error)
        raise _NotMadeError("its kernel is not valid code") from error


def _output(lowering: Lowering, output: View | str) -> View | None:
    return lowering.views.get(output) if isinstance(output, str) else output


def _result(lowering: Lowering, output: View | str, starts: Mapping[Storage, int]) -> Region | str:
    view = _output(lowering, output)
    return _region(view, starts) if view is not None else str(output)


def _constants(steps: Sequence[Step]) -> tuple[Array, dict[Storage, int]]:
    """All constant storages one after the other, each aligned; where each begins, in bytes."""
    places: dict[Storage, int] = {}
    end = 0
    for step in wanted(steps):
        for storage in storages_of(step):
            if storage.home is Home.CONSTANT and storage not in places:
                places[storage] = end
                end += -(-storage.bytes // ALIGNMENT) * ALIGNMENT
    block = aligned_bytes(end)
    for storage, at in wanted(places.items()):
        if storage.data is not None:
            block[at : at + storage.bytes] = storage.data.view(np.uint8)
    return block, places


def _address(storage: Storage, offset: int, starts: Mapping[Storage, int]) -> Address:
    return Address(home=storage.home, port=max(storage.port, 0), offset=starts.get(storage, 0) + offset)


def _region(view: View, starts: Mapping[Storage, int]) -> Region:
    address = _address(view.storage, view.offset, starts)
    return Region(address=address, shape=view.shape, strides=view.phantom.strides, dtype=view.dtype.name)


def _native(step: KernelStep, starts: Mapping[Storage, int]) -> NativeStep:
    return NativeStep(
        function=step.kernel.name,
        kind=step.kernel.reported_kind,
        chunks=step.kernel.chunks,
        arguments=tuple(_address(each.storage, each.offset, starts) for each in step.pointers),
        operators=step.operators,
        flops=step.kernel.flops,
        bytes=step.bytes,
    )


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
