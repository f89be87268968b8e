"""Frames of signals and images: all of them times one matrix, and their sum where they overlap."""

from __future__ import annotations

from engine.compiler.kernels.expr import Operand, apply
from engine.compiler.lowering.declining import FLOAT32
from engine.compiler.lowering.fusion import alone
from engine.compiler.lowering.result import Result
from engine.compiler.lowering.rules.elementwise.composing import Composition, derived
from engine.compiler.lowering.rules.movement.padding import fill
from engine.compiler.lowering.rules.products.linear import linear_step, rows_as_image
from engine.compiler.storage import View, row_major
from engine.tensor import Array

X, Y = Operand(0), Operand(1)


def multiplied(composition: Composition, frames: View, lines: View, weight: Array, bias: Array | None = None) -> None:
    """All frames times one matrix, in memory that is given."""
    context, size = composition.context, frames.shape[-1]
    if frames.shape[0] == 1 and frames.strides[-1] in (0, 1):
        rows = derived(frames, frames.phantom[0])
    else:
        apart = row_major(frames.shape, FLOAT32)
        composition.steps.append(context.copy(frames, apart))
        rows = derived(apart, apart.phantom.reshape(-1, size))
    result = Result.seen(alone(context.op), lines, rows_as_image, context.lowering.alarm)
    composition.steps.append(linear_step(context, result, rows, weight, bias))


def added(composition: Composition, frames: View, hop: int, least: int = 0) -> View:
    """(batch, channels, frames, size) -> (batch, channels, length): the sum of all frames, each ``hop`` after the last.

    Args:
        least: a length; there are zeros behind the frames that are shorter.
    """
    batch, channels, count, size = frames.shape
    ground = row_major((batch, channels, max((count - 1) * hop + size, least)), FLOAT32)
    composition.steps.append(fill(composition.context, ground, 0.0))
    for first in range(0, size, hop):
        begin, piece = ground.phantom[..., first:], frames.phantom[..., first : first + hop]
        *outer, step = begin.strides
        place = derived(ground, begin.as_strided(piece.shape, (*outer, hop * step, step)))
        composition.map(apply("add", X, Y), place, derived(frames, piece), target=place)
    return ground
