"""Steps with the address of everything: what a part of a program is once its kernels have code and memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

from engine.compiler.assembly.objects import Objects
from engine.compiler.assembly.opening import Call
from engine.compiler.assembly.parts import Part
from engine.compiler.blueprint import Region
from engine.compiler.buffers import Buffers, written
from engine.compiler.ending import Piece
from engine.compiler.lowering import Lowering
from engine.compiler.lowering.cuts import Cut
from engine.compiler.lowering.steps import KernelStep
from engine.compiler.native import NativeStep, NativeSteps
from engine.compiler.places import Address, Home, address
from engine.compiler.storage import Storage, View

# A kernel that has so many times as many weights to read as all else waits for them and nothing else.
_MOSTLY = 2


def _address(storage: Storage, offset: int, starts: Mapping[Storage, int]) -> Address:
    start = 0 if storage.home in (Home.INPUT, Home.OUTPUT) else starts[storage]
    return address(storage.home, max(storage.port, 0), start + offset)


def region_of(view: View, starts: Mapping[Storage, int]) -> Region:
    """The tensor of a view, where that lies.

    Args:
        starts: where every storage begins in its home.
    """
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


def pieces_of(
    lowering: Lowering,
    parts: Sequence[Part],
    starts: Mapping[Storage, int],
    objects: Objects,
    outputs: Sequence[Region | str],
) -> list[Piece]:
    """What parts of a program are in it.

    Args:
        starts: where every storage begins in its home.
        outputs: what the last returns.
    """
    pieces = []
    for number, part in enumerate(parts):
        is_last = number == len(parts) - 1
        after = None if is_last else parts[number + 1].cut
        kernels = [each for each in part.steps if isinstance(each, KernelStep)]
        steps = [_native(each, starts, objects.call_of(each.kernel)) for each in kernels]
        names, memory = part.names, part.memory
        piece = Piece(
            steps=NativeSteps.of(steps),
            buffers=written(
                [
                    (memory.offsets[each], each.bytes, life.first, life.last, names.get(each, ()))
                    for each, life in memory.lifetimes.items()
                ]
            ),
            clean=tuple(memory.clean),
            outputs=tuple(outputs) if is_last else (),
            fusions=_fusions(lowering, part.cut, after),
            code=tuple(dict.fromkeys(objects.found.get(each.function, b"") for each in steps)),
        )
        pieces.append(piece)
    return pieces


def buffers_of(pieces: Sequence[Piece]) -> Buffers:
    """What lies where and when, of pieces that follow each other; all but the first are kernels alone."""
    before = accumulate([0, *(len(piece.steps) for piece in pieces)])
    return Buffers(tuple(zip(before, [piece.buffers for piece in pieces], strict=False)))


def _fusions(lowering: Lowering, first: Cut | None, after: Cut | None) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """What joined between two cuts."""
    found = []
    for name, joined in lowering.fusions.items():
        begin = 0 if first is None else first.fusions.get(name, 0)
        end = len(joined) if after is None else after.fusions.get(name, 0)
        if begin < end:
            found.append((name, tuple(joined[begin:end])))
    return tuple(found)
