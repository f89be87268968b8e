"""Layers of a recurrent network as one kernel, each some steps behind the one below, by a thread of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from engine.compiler.kernels.recurrent.beside import LINE_WORDS
from engine.compiler.kernels.recurrent.recurrence import Recurrence
from engine.compiler.kernels.recurrent.stack import RecurrentStack
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.rules.recurrent.kernels import PIECE_FLOPS
from engine.compiler.lowering.steps import KernelStep, Pointer, pointer
from engine.compiler.storage import View, constant, row_major
from engine.tensor import Array

_WORD = np.dtype(np.int64)


def stacked(context: Context, layers: Sequence[Sequence[KernelStep]]) -> Iterator[KernelStep]:
    """The steps of all layers; one that computes them side by side, where each is a single chunk of one step."""
    kernels = [kernel for steps in layers for step in steps if (kernel := _alone(step)) is not None]
    steps = list(chain.from_iterable(layers))
    is_short = sum(kernel.flops for kernel in kernels) <= PIECE_FLOPS
    is_plain = len(layers) > 1 and len(kernels) == len(steps) == len(layers)
    if not is_plain or not is_short or context.lowering.is_open:
        yield from steps
        return
    words = row_major((len(layers), LINE_WORDS), _WORD)
    zeros = constant(np.zeros(1, _WORD))
    yield context.copy(_spread(zeros, words.shape), words)
    last = len(layers) - 1
    own = [replace(each, waits=number > 0, tells=number < last) for number, each in enumerate(kernels)]
    given = [(*step.pointers, *_counts(words, number, last)) for number, step in enumerate(steps)]
    yield KernelStep(
        kernel=RecurrentStack(host=context.host, layers=tuple(own)),
        pointers=(pointer(words), *chain.from_iterable(given)),
        operators=steps[0].operators,
        bytes=sum(step.bytes for step in steps),
    )


def _alone(step: KernelStep) -> Recurrence | None:
    """The recurrence of a step, where it makes the input's part of its gates itself, as a single chunk."""
    kernel = step.kernel
    is_alone = isinstance(kernel, Recurrence) and kernel.ahead is not None and kernel.chunks == 1
    return kernel if is_alone and isinstance(kernel, Recurrence) else None


def _counts(words: View, number: int, last: int) -> Iterator[Pointer]:
    """Where a layer finds how far the one below is, and where it says how far it is itself."""
    if number > 0:
        yield Pointer(words.storage, words.offset + number * LINE_WORDS * _WORD.itemsize)
    if number < last:
        yield Pointer(words.storage, words.offset + (number + 1) * LINE_WORDS * _WORD.itemsize)


def _spread(view: View, shape: tuple[int, ...]) -> View:
    phantom: Array = np.broadcast_to(view.phantom, shape)
    spread = view.derive(phantom)
    assert spread is not None
    return spread
