"""Convolutions to a few pixels in all, as at the end of deep networks: what each pixel sees is gathered into a row.

A direct kernel reads the weights again for every few pixels of a line; here a line has no more, and weights are so many
that they come from beyond the second-level cache each time. Rows of all images are multiplied at once, and the weights
read once. Gathering is next to nothing beside that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from engine.compiler.kernels.expr import Operand
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.declining import FLOAT32
from engine.compiler.lowering.rules.elementwise.composing import Composition, derived
from engine.compiler.lowering.rules.movement.padding import fill
from engine.compiler.lowering.rules.products.frames import multiplied
from engine.compiler.lowering.steps import Made
from engine.compiler.storage import row_major
from engine.ir.dims import is_symbolic
from engine.layers.convolution.conv import Conv
from engine.tensor import Array

# The most pixels of all images together, of a line, and taps, each of which is a copy.
MOST_PIXELS = 24
MOST_COLUMNS = 4
MOST_TAPS = 64


@dataclass(frozen=True, slots=True)
class _Met:
    """Along an axis, a tap and the outputs for which it lies within the image: each reads ``stride`` further."""

    tap: int
    first: int
    count: int
    begin: int
    stride: int

    @property
    def outputs(self) -> slice:
        return slice(self.first, self.first + self.count)

    @property
    def inputs(self) -> slice:
        return slice(self.begin, self.begin + (self.count - 1) * self.stride + 1, self.stride)


def gathers(context: Context, layer: Conv, weight: Array) -> bool:
    """Whether a convolution is better computed so; the weight is (O, I, *taps)."""
    if context.result_spec.rank != weight.ndim or layer.groups != 1 or context.dtype != FLOAT32:
        return False
    batch, _, *sizes = context.result_spec.sizes
    lines, taps = batch * math.prod(sizes[:-1]), math.prod(weight.shape[2:])
    if is_symbolic(context.result_spec.shape):  # which pixels meet a tap depends on the size
        return False
    is_small = lines > 1 and sizes[-1] <= MOST_COLUMNS and lines * sizes[-1] <= MOST_PIXELS
    is_large = weight.nbytes > context.host.memory.second_bytes and 1 < taps <= MOST_TAPS
    return is_small and is_large and layer.padding_mode == "zeros"


def lower_gathered(
    context: Context, layer: Conv, weight: Array, bias: Array | None, pairs: Sequence[tuple[int, int]]
) -> Made:
    """(batch, inputs, *S) -> (batch, outputs, *T).

    Args:
        pairs: zeros before and after each axis.
    """
    x, composition, kernel = context.tensor(0), Composition(context), weight.shape[2:]
    batch, outputs, *sizes = context.result_spec.sizes
    windows = zip(layer.windows_of(kernel), pairs, x.shape[2:], sizes, strict=True)
    axes = [_met(w.kernel, w.stride, w.dilation, before, size, count) for w, (before, _), size, count in windows]
    taps = [*product(*axes)]
    gathered = row_major((batch, *sizes, len(taps), x.shape[1]), FLOAT32)
    if any(each.count < count for tap in taps for each, count in zip(tap, sizes, strict=True)):
        composition.steps.append(fill(context, gathered, 0.0))
    for number, tap in enumerate(taps):
        seen = x.phantom.moveaxis(1, -1)[(slice(None), *(each.inputs for each in tap))]
        place = gathered.phantom[..., number, :][(slice(None), *(each.outputs for each in tap))]
        composition.map(Operand(0), derived(x, seen), target=derived(gathered, place))
    rows = derived(gathered, gathered.phantom.reshape(1, batch * math.prod(sizes), -1))
    sums = row_major((batch, *sizes, outputs), FLOAT32)
    chosen = np.moveaxis(weight, 1, -1)[:, *np.array([[each.tap for each in tap] for tap in taps]).T]  # (O, taps, I)
    lines = derived(sums, sums.phantom.reshape(-1, outputs))
    multiplied(composition, rows, lines, np.ascontiguousarray(chosen.reshape(outputs, -1)), bias)
    return composition.finish(Operand(0), derived(sums, sums.phantom.moveaxis(-1, 1)))


def _met(kernel: int, stride: int, dilation: int, before: int, size: int, count: int) -> list[_Met]:
    """The taps of an axis that meet the image anywhere."""
    found = []
    for tap in range(kernel):
        offset = tap * dilation - before
        first = max(0, -(offset // stride))
        last = min(count, (size - 1 - offset) // stride + 1)
        if first < last:
            found.append(_Met(tap, first, last - first, first * stride + offset, stride))
    return found
