"""Layer pipelining: recurrent layers that follow each other run in parallel, each some steps behind its input.

These are the layers of one network, or operators that read each other's sequence, possibly in another shape. They are
recognised by the memory that their kernels read and write.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from engine.compiler.kernels.recurrent.progress import LINE_WORDS
from engine.compiler.kernels.recurrent.recurrence import Recurrence, RecurrentStack
from engine.compiler.lowering.steps import KernelStep, Pointer, Step, copy, pointer
from engine.compiler.storage import View, constant, row_major
from engine.ir.dims import hint, is_same

# Largest work of pipelined layers, because a run checks for cancellation only after them.
MAX_FLOPS = 2_000_000_000
_WORD = np.dtype(np.int64)


@dataclass(frozen=True, slots=True)
class _Layer:
    """Step that computes a layer of one direction and one row as a single chunk, with its input product."""

    step: KernelStep
    kernel: Recurrence

    @classmethod
    def of(cls, step: Step) -> _Layer | None:
        """Return a step as such a layer; None if it is not one."""
        if not isinstance(step, KernelStep) or not isinstance(step.kernel, Recurrence):
            return None
        kernel = step.kernel
        return cls(step, kernel) if kernel.hoisted is not None and kernel.chunks == kernel.batch == 1 else None

    @property
    def sequence(self) -> tuple[Pointer, ...]:
        """Return the pointer to the sequence of h, if it is stored."""
        return self.step.pointers[1:2] if self.kernel.sequence is not None else ()

    @property
    def states(self) -> tuple[tuple[Pointer, ...], tuple[Pointer, ...]]:
        """Return the pointers of initial and final states."""
        first, count = 2 + len(self.sequence), len(self.kernel.initial)
        return self.step.pointers[first : first + count], self.step.pointers[first + count + 2 :]

    def reads(self, other: _Layer) -> bool:
        """Return whether its input is the other's sequence, step by step."""
        kernel, theirs, source = self.kernel, other.kernel, self.step.pointers[0]
        if theirs.sequence is None or kernel.hoisted is None:
            return False
        is_there = source in other.sequence and is_same(kernel.source.steps, theirs.sequence.steps)
        return is_there and is_same(kernel.steps, theirs.steps) and kernel.hoisted.width <= theirs.units

    def conflicts_with(self, other: _Layer) -> bool:
        """Return whether one writes memory that the other uses, except the sequence between them."""
        mine, theirs = self.states, other.states
        if {each.storage for each in self.sequence} & {each.storage for each in other.step.pointers}:
            return True
        if {each.storage for each in other.sequence} & {each.storage for each in self.step.pointers[1:]}:
            return True
        return self._overlaps(mine[1], [*theirs[0], *theirs[1]]) or self._overlaps(mine[0], theirs[1])

    def _overlaps(self, some: Iterable[Pointer], others: Sequence[Pointer]) -> bool:
        """Return whether the memory of any two states overlaps."""
        size = (4 if self.kernel.precision == "float" else 8) * self.kernel.units
        return any(a.storage is b.storage and abs(a.offset - b.offset) < size for a in some for b in others)


def pipeline_layers(steps: Sequence[Step], excluded: Collection[str]) -> tuple[list[Step], list[str]]:
    """Return the steps with pipelined layers, and the names of operators that kernels of others now compute.

    Args:
        excluded: operators that are computed by themselves.
    """
    result: list[Step] = []
    waiting: list[_Layer] = []
    joined: list[str] = []

    def end() -> None:
        if len(waiting) > 1:
            result.extend(_pipelined(waiting))
            joined.extend(_operators(waiting)[1:])
        else:
            result.extend(layer.step for layer in waiting)
        waiting.clear()

    for step in steps:
        layer = _Layer.of(step)
        if layer is None or set(layer.step.operators) & set(excluded):
            end()
            result.append(step)
            continue
        flops = sum(hint(each.kernel.flops) for each in (*waiting, layer))
        if waiting and (not layer.reads(waiting[-1]) or any(map(layer.conflicts_with, waiting)) or flops > MAX_FLOPS):
            end()
        waiting.append(layer)
    end()
    return result, joined


def _operators(layers: Sequence[_Layer]) -> list[str]:
    return list(dict.fromkeys(name for layer in layers for name in layer.step.operators))


def _pipelined(layers: Sequence[_Layer]) -> Iterator[KernelStep]:
    """Yield a copy of zeros to the step counters, and the step of the layers."""
    last, host = len(layers) - 1, layers[0].kernel.host
    operators = _operators(layers)
    words = row_major((len(layers), LINE_WORDS), _WORD)
    yield copy(constant(np.zeros(words.shape, _WORD)), words, operators[:1], host)
    kernels = [replace(layer.kernel, waits=number > 0, publishes=number < last) for number, layer in enumerate(layers)]
    given = [(*layer.step.pointers, *_counts(words, number, last)) for number, layer in enumerate(layers)]
    yield KernelStep(
        kernel=RecurrentStack(host=host, layers=tuple(kernels)),
        pointers=(pointer(words), *chain.from_iterable(given)),
        operators=tuple(operators),
        bytes=sum(layer.step.bytes for layer in layers),
    )


def _counts(words: View, number: int, last: int) -> Iterator[Pointer]:
    """Yield the counter of the layer below, and the counter of this layer."""
    if number > 0:
        yield Pointer(words.storage, number * LINE_WORDS * _WORD.itemsize)
    if number < last:
        yield Pointer(words.storage, (number + 1) * LINE_WORDS * _WORD.itemsize)
