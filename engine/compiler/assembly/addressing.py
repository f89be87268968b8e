"""Steps with the address of every argument."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.compiler.addresses import Address, MemorySpace, address
from engine.compiler.assembly.dynamic_kernels import Call
from engine.compiler.assembly.memory import MemoryPlan
from engine.compiler.assembly.objects import Objects
from engine.compiler.executable import NativeStep, NativeSteps, Region, Row
from engine.compiler.lowering.steps import KernelStep, Step
from engine.compiler.storage import Storage, View
from engine.ir.dims import hint

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
