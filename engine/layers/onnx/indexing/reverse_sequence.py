"""Reversal of sequences of different lengths."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.operands.fitting import check_shape
from engine.tensor import Array, TensorSpec, format_shape


def checked_lengths(lengths: Array, steps: int) -> Array:
    """Return the lengths; refuse those that do not fit the number of steps."""
    if lengths.dtype.kind not in "iu" or (lengths.size and not 0 <= lengths.min() <= lengths.max() <= steps):
        raise ShapeError("lengths do not fit the steps", found=lengths.tolist()[:8], expected=f"0 to {steps}")
    return lengths


def turned(x: Array, lengths: Array) -> Array:
    """Reverse each sequence of (T, B, ...) up to its length; keep the rest."""
    step = np.arange(len(x))[:, None]
    source = np.where(step < lengths, lengths - 1 - step, step)
    return np.asarray(np.take_along_axis(x, source.reshape(*source.shape, *(1,) * (x.ndim - 2)), axis=0))


@register("ReverseSequence", positional=("input", "lengths"))
class ReverseSequence(Layer):
    """Batches whose first elements along the time axis, up to the length of each, are reversed."""

    batch_axis: int = 1
    time_axis: int = 0

    def __post_init__(self) -> None:
        if {self.batch_axis, self.time_axis} != {0, 1}:
            found = f"batch_axis {self.batch_axis}, time_axis {self.time_axis}"
            raise ParameterError("axes do not fit", found=found, expected="0 and 1")

    def infer(self, input: TensorSpec, lengths: Any) -> TensorSpec:
        if input.rank < 2:
            raise ShapeError("input does not fit", found=format_shape(input.shape), expected="2 axes or more")
        batch = input.shape[self.batch_axis]
        if isinstance(lengths, TensorSpec):
            check_shape(lengths.shape, (batch,), "lengths do not fit")
        return input

    def forward(self, input: Array, lengths: Any) -> Array:
        counts = np.atleast_1d(np.asarray(lengths))
        self.infer(TensorSpec(input.shape, input.dtype), TensorSpec(counts.shape, counts.dtype))
        x = input if self.batch_axis == 1 else input.swapaxes(0, 1)
        y = turned(x, checked_lengths(counts, len(x)))
        return y if self.batch_axis == 1 else y.swapaxes(0, 1)
