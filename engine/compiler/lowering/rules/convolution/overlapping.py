"""Transposed convolutions of signals to few channels, or by large strides: a product with all taps, then a sum of what
overlaps.

So filter banks give signals back. A kernel of their own for the outputs of each phase would be as many as the stride,
and its vectors hold output channels: a single one leaves them all but empty, which taps do not.
"""

from __future__ import annotations

import numpy as np

from engine.compiler.kernels.expr import Operand, apply
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.declining import FLOAT32
from engine.compiler.lowering.rules.elementwise.composing import Composition, derived
from engine.compiler.lowering.rules.products.frames import added, multiplied
from engine.compiler.lowering.steps import Made
from engine.compiler.storage import constant, row_major
from engine.layers.convolution.conv_transpose import ConvTranspose
from engine.layers.operands.spatial import spread
from engine.tensor import Array

X, Y = Operand(0), Operand(1)
# How many times as long as the result the sums may be, of which paddings are cut off.
MOST_CUT = 4
# Outputs of so many inputs may overlap; all of them are in memory before they are summed.
MOST_OVERLAP = 16
# Phases of an axis that have kernels of their own.
MOST_PHASES = 16


def overlaps(context: Context, layer: ConvTranspose, outputs: int, taps: int) -> bool:
    """Whether a product with all taps is possible, and wanted: so it is where outputs fill half a vector at most."""
    if layer.spatial_rank != 1 or layer.groups != 1 or layer.dilation != (1,) or context.dtype != FLOAT32:
        return False
    (stride,), count, kept = layer.stride, context.tensor(0).shape[2], context.result_spec.sizes[2]
    if (count - 1) * stride + taps > MOST_CUT * kept or taps > MOST_OVERLAP * stride:
        return False
    return stride > MOST_PHASES or (stride > 1 and 2 * outputs <= context.host.lanes)


def lower_overlapping(context: Context, layer: ConvTranspose, weight: Array, bias: Array | None) -> Made:
    """(batch, inputs, length) -> (batch, outputs, length)."""
    x, composition = context.tensor(0), Composition(context)
    (stride,), (padding,) = layer.stride, spread(layer.padding, 1, "padding", 0)
    inputs, outputs, taps = weight.shape
    batch, _, count = x.shape
    length = context.result_spec.sizes[2]
    frames = row_major((batch, count, outputs * taps), FLOAT32)
    lines = derived(frames, frames.phantom.reshape(batch * count, -1))
    multiplied(
        composition, derived(x, x.phantom.swapaxes(1, 2)), lines, np.ascontiguousarray(weight.reshape(inputs, -1).T)
    )
    apart = frames.phantom.reshape(batch, count, outputs, taps).swapaxes(1, 2)
    ground = added(composition, derived(frames, apart), stride, padding + length)
    kept = derived(ground, ground.phantom[..., padding : padding + length])
    if bias is None:
        return composition.finish(X, kept)
    return composition.finish(apply("add", X, Y), kept, constant(bias.reshape(1, outputs, 1)))
