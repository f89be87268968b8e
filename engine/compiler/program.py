"""Generates, assembles and lays out what lowering made; loads the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engine.compiler import machine
from engine.compiler.blueprint import Address, Blueprint, Home, NativeStep, ReferenceCall, Region, Segment
from engine.compiler.host import Host
from engine.compiler.ir import Module
from engine.compiler.lowering import Lowering
from engine.compiler.lowering.steps import KernelStep, ReferenceStep, Step
from engine.compiler.memory import plan_memory, storages_of
from engine.compiler.storage import ALIGNMENT, Storage, View
from engine.compiler.team import team_code
from engine.graph.operator import RuntimeOperator
from engine.tensor import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A blueprint whose code is loaded; immutable, shared by all instances.

    Args:
        operators: those that run on the reference, by name.
        known: values of operands that are constant, by name.
    """

    blueprint: Blueprint
    code: machine.Code
    operators: Mapping[str, RuntimeOperator]
    known: Mapping[str, object]


def make_blueprint(lowering: Lowering) -> Blueprint:
    """Generate and assemble the kernels of a lowered graph, pack its constants, lay out its memory.

    Raises:
        CompileError: generated code is not valid.
    """
    kept = [view for name in lowering.outputs if (view := _output(lowering, name)) is not None]
    memory = plan_memory(lowering.steps, kept)
    constants, places = _constants(lowering.steps)
    starts = {**memory.offsets, **places}
    return Blueprint(
        code=machine.assemble(_source(lowering.steps, lowering.host), lowering.host),
        constants=constants,
        steps=tuple(_native(step, starts) for step in lowering.steps if isinstance(step, KernelStep)),
        segments=tuple(_segments(lowering.steps, starts)),
        arena_bytes=memory.bytes,
        outputs=tuple(_result(lowering, each, starts) for each in lowering.outputs),
        reasons=dict(lowering.reasons),
    )


def load(
    blueprint: Blueprint, host: Host, operators: Mapping[str, RuntimeOperator], known: Mapping[str, object]
) -> Program:
    """Make a blueprint's code callable."""
    code = machine.Code([blueprint.code], host)
    return Program(blueprint=blueprint, code=code, operators=operators, known=known)


def aligned_bytes(count: int) -> Array:
    """A zeroed block of memory that begins on a cache line."""
    raw = np.zeros(count + ALIGNMENT, np.uint8)
    skip = -raw.ctypes.data % ALIGNMENT
    return raw[skip : skip + count]


def _source(steps: Sequence[Step], host: Host) -> str:
    module = Module()
    for step in steps:
        if isinstance(step, KernelStep) and step.kernel.name not in module.functions:
            step.kernel.emit(module, host)
    return f"{team_code(host)}\n{module}"


def _output(lowering: Lowering, output: View | str) -> View | None:
    return lowering.views.get(output) if isinstance(output, str) else output


def _result(lowering: Lowering, output: View | str, starts: Mapping[Storage, int]) -> Region | str:
    view = _output(lowering, output)
    return _region(view, starts) if view is not None else str(output)


def _constants(steps: Sequence[Step]) -> tuple[Array, dict[Storage, int]]:
    """All constant storages one after the other, each aligned; where each begins, in bytes."""
    places: dict[Storage, int] = {}
    end = 0
    for step in steps:
        for storage in storages_of(step):
            if storage.home is Home.CONSTANT and storage not in places:
                places[storage] = end
                end += -(-storage.bytes // ALIGNMENT) * ALIGNMENT
    block = aligned_bytes(end)
    for storage, at in places.items():
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
        kind=step.kernel.kind,
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
