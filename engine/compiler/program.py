"""A compiled graph: machine code, constants, and the list of steps, for inputs of one set of shapes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engine.compiler import machine
from engine.compiler.host import Host
from engine.compiler.ir import Module
from engine.compiler.lowering import Lowering
from engine.compiler.lowering.steps import KernelStep, ReferenceStep, Step
from engine.compiler.memory import MemoryPlan, plan_memory
from engine.compiler.storage import ALIGNMENT, Home, Storage, View
from engine.compiler.team import team_code
from engine.graph.operator import RuntimeOperator
from engine.tensor import Array, TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Steps that run without Python between them, or one operator of the reference.

    Args:
        first, last: native steps, the last excluded; equal for an operator.
        reference: the operator.
    """

    first: int
    last: int
    reference: ReferenceStep | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeStep:
    """What a kernel step is at run time, and what reports say of it.

    Args:
        function: name in the machine code.
        arguments: (home, port, bytes after the beginning of the home) of each pointer.
    """

    function: str
    kind: str
    chunks: int
    arguments: tuple[tuple[Home, int, int], ...]
    operators: tuple[str, ...]
    flops: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Everything an instance needs; immutable, shared by all instances.

    Args:
        inputs: spec of every input of the graph.
        outputs: of every output: its view, or the name of a value the reference computes.
        constants: the packed weights, one aligned block.
        reasons: operator -> why it runs on the reference.
    """

    host: Host
    code: machine.Code
    steps: tuple[NativeStep, ...]
    segments: tuple[Segment, ...]
    constants: Array
    memory: MemoryPlan
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[View | str, ...]
    known: Mapping[str, object]
    reasons: Mapping[str, str]
    kernels: Mapping[str, str]
    compile_s: float


def compile_program(lowering: Lowering, inputs: Sequence[TensorSpec]) -> Program:
    """Generate, assemble and lay out a lowered graph.

    Raises:
        CompileError: generated code is not valid.
    """
    began = time.perf_counter()
    outputs = _outputs(lowering)
    memory = plan_memory(lowering.steps, [each for each in outputs if isinstance(each, View)])
    constants, places = _constants(lowering.steps)
    code = machine.Code([machine.assemble(_source(lowering.steps, lowering.host), lowering.host)], lowering.host)
    native = [step for step in lowering.steps if isinstance(step, KernelStep)]
    return Program(
        host=lowering.host,
        code=code,
        steps=tuple(_native(step, memory, places) for step in native),
        segments=tuple(_segments(lowering.steps)),
        constants=constants,
        memory=memory,
        inputs=tuple(inputs),
        outputs=outputs,
        known=_known(lowering),
        reasons=dict(lowering.reasons),
        kernels={name: step.kernel.kind for step in native for name in step.operators},
        compile_s=time.perf_counter() - began,
    )


def _source(steps: Sequence[Step], host: Host) -> str:
    module = Module()
    for step in steps:
        if isinstance(step, KernelStep) and step.kernel.name not in module.functions:
            step.kernel.emit(module, host)
    return f"{team_code(host)}\n{module}"


def _outputs(lowering: Lowering) -> tuple[View | str, ...]:
    return tuple(lowering.views.get(each, each) if isinstance(each, str) else each for each in lowering.outputs)


def _known(lowering: Lowering) -> dict[str, object]:
    """Values the reference may need: constants and what is no tensor in memory."""
    return {name: value for name, value in lowering.constants.items() if not name.startswith("\0")}


def _constants(steps: Sequence[Step]) -> tuple[Array, dict[Storage, int]]:
    """All constant storages one after the other, each aligned; where each begins, in bytes."""
    places: dict[Storage, int] = {}
    end = 0
    for step in steps:
        for storage in (each.storage for each in step.pointers) if isinstance(step, KernelStep) else ():
            if storage.home is Home.CONSTANT and storage not in places:
                places[storage] = end
                end += -(-storage.bytes // ALIGNMENT) * ALIGNMENT
    block = aligned_bytes(end)
    for storage, at in places.items():
        if storage.data is not None:
            block[at : at + storage.bytes] = storage.data.view(np.uint8)
    return block, places


def aligned_bytes(count: int) -> Array:
    """A zeroed block of memory that begins on a cache line."""
    raw = np.zeros(count + ALIGNMENT, np.uint8)
    skip = -raw.ctypes.data % ALIGNMENT
    return raw[skip : skip + count]


def _native(step: KernelStep, memory: MemoryPlan, constants: Mapping[Storage, int]) -> NativeStep:
    arguments = []
    for each in step.pointers:
        storage = each.storage
        base = 0
        if storage.home is Home.ARENA:
            base = memory.offsets[storage]
        elif storage.home is Home.CONSTANT:
            base = constants[storage]
        arguments.append((storage.home, max(storage.port, 0), base + each.offset))
    return NativeStep(
        function=step.kernel.name,
        kind=step.kernel.kind,
        chunks=step.kernel.chunks,
        arguments=tuple(arguments),
        operators=step.operators,
        flops=step.kernel.flops,
        bytes=step.bytes,
    )


def _segments(steps: Sequence[Step]) -> list[Segment]:
    segments: list[Segment] = []
    first = index = 0
    for step in steps:
        if isinstance(step, KernelStep):
            index += 1
            continue
        if index > first:
            segments.append(Segment(first=first, last=index))
        segments.append(Segment(first=index, last=index, reference=step))
        first = index
    if index > first:
        segments.append(Segment(first=first, last=index))
    return segments


def operators_of(program: Program) -> list[RuntimeOperator]:
    """The operators that run on the reference."""
    return [each.reference.operator for each in program.segments if each.reference is not None]
