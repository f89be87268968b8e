"""Overlap-add: transposed convolutions of signals as one product with all taps, then a sum of what overlaps.

It is for few output channels or a large stride, as in filter banks. Kernels of phases would be as many as the stride,
and nearly empty with one output channel.
"""

from __future__ import annotations

import numpy as np

from engine.compiler.kernels.expr import Operand, apply
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.fusion import Result, unfused
from engine.compiler.lowering.rules.composition import Composition
from engine.compiler.lowering.rules.movement.padding import fill
from engine.compiler.lowering.rules.products.linear import linear_step, rows_as_image
from engine.compiler.lowering.steps import Lowered, derived
from engine.compiler.storage import FLOAT32, View, constant, row_major
from engine.layers.convolution.conv_transpose import ConvTranspose
from engine.layers.operands.spatial import spread
from engine.tensor import Array

X, Y = Operand(0), Operand(1)
# Limit of the length of the sums, before cropping, for each element of the result.
MAX_CUT = 4
# Most inputs whose outputs overlap; all are in memory before they are summed.
MAX_OVERLAP = 16
# Most phases of an axis with kernels of their own.
MAX_PHASES = 16


def prefers_overlap_add(context: Context, layer: ConvTranspose, outputs: int, taps: int) -> bool:
    """Return whether overlap-add is possible and faster: where outputs fill at most half a vector."""
    if layer.spatial_rank != 1 or layer.groups != 1 or layer.dilation != (1,) or context.dtype != FLOAT32:
        return False
    (stride,), count, kept = layer.stride, context.tensor(0).shape[2], context.result_spec.sizes[2]
    if (count - 1) * stride + taps > MAX_CUT * kept or taps > MAX_OVERLAP * stride:
        return False
    return stride > MAX_PHASES or (stride > 1 and 2 * outputs <= context.host.lanes)


def lower_overlap_add(context: Context, layer: ConvTranspose, weight: Array, bias: Array | None) -> Lowered:
    """Lower (batch, inputs, length) -> (batch, outputs, length)."""
    x, composition = context.tensor(0), Composition(context)
    (stride,), (padding,) = layer.stride, spread(layer.padding, 1, "padding", 0)
    inputs, outputs, taps = weight.shape
    batch, _, count = x.shape
    length = context.result_spec.sizes[2]
    frames = row_major((batch, count, outputs * taps), FLOAT32)
    lines = derived(frames, frames.meta.reshape(batch * count, -1))
    _multiply_frames(
        composition, derived(x, x.meta.swapaxes(1, 2)), lines, np.ascontiguousarray(weight.reshape(inputs, -1).T)
    )
    by_output = frames.meta.reshape(batch, count, outputs, taps).swapaxes(1, 2)
    buffer = _overlap_add(composition, derived(frames, by_output), stride, padding + length)
    kept = derived(buffer, buffer.meta[..., padding : padding + length])
    if bias is None:
        return composition.finish(X, kept)
    return composition.finish(apply("add", X, Y), kept, constant(bias.reshape(1, outputs, 1)))


def _multiply_frames(composition: Composition, frames: View, lines: View, weight: Array) -> None:
    """Multiply all frames by one matrix, and store the result in ``lines``."""
    context, size = composition.context, frames.shape[-1]
    if frames.shape[0] == 1 and frames.strides[-1] in (0, 1):
        rows = derived(frames, frames.meta[0])
    else:
        copied = context.copied(frames, composition.steps)
        rows = derived(copied, copied.meta.reshape(-1, size))
    result = Result.of(unfused(context.op), lines, rows_as_image, context.lowering.fault_flag)
    composition.steps.append(linear_step(context, result, rows, weight, None))


def _overlap_add(composition: Composition, frames: View, hop: int, least: int) -> View:
    """Return (batch, channels, length), the sum of all frames (batch, channels, frames, size) ``hop`` apart.

    Args:
        least: minimum length; shorter results are padded with zeros.
    """
    batch, channels, count, size = frames.shape
    buffer = row_major((batch, channels, max((count - 1) * hop + size, least)), FLOAT32)
    composition.steps.append(fill(composition.context, buffer, 0.0))
    for first in range(0, size, hop):
        begin, part = buffer.meta[..., first:], frames.meta[..., first : first + hop]
        *outer, step = begin.strides
        place = derived(buffer, begin.as_strided(part.shape, (*outer, hop * step, step)))
        composition.map(apply("add", X, Y), place, derived(frames, part), target=place)
    return buffer
