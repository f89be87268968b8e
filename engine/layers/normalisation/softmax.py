"""Softmax and its relatives: exponentials that sum to 1 along one axis.

Inputs are shifted by their maximum, so that exp cannot overflow. A row without a finite maximum gives NaN, as in
PyTorch. The file drops ``dtype=``: where it annotates another dtype for the output than for the input, the input is
converted first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.layers.creation.container import formula
from engine.layers.definition.composite import CallLayer, Composite
from engine.layers.definition.layer import NO_ANNOTATIONS, Annotations, Layer
from engine.layers.definition.registry import register
from engine.layers.operands.axes import checked_axis
from engine.layers.operands.precision import widened
from engine.promotion import cast, float_dtype
from engine.tensor import Array, DType, TensorSpec


class _AlongAxis(Layer):
    """Base of layers that normalise along ``dim``."""

    dim: int | None = None
    annotations: Annotations = NO_ANNOTATIONS

    def infer(self, input: TensorSpec) -> TensorSpec:
        self.axis(input.rank)
        return TensorSpec(input.shape, self._dtype(input.dtype))

    def axis(self, rank: int) -> int:
        """Return ``dim``, or the implicit one of PyTorch's functional forms if it was omitted."""
        implicit = 0 if rank in (0, 1, 3) else 1
        return checked_axis(implicit if self.dim is None else self.dim, rank)

    def _dtype(self, natural: DType) -> DType:
        source = self.annotations.inputs[0] if self.annotations.inputs else None
        target = self.annotations.outputs[0]
        if target is not None and target.dtype != (natural if source is None else source.dtype):
            return target.dtype
        return float_dtype(natural)

    def _prepared(self, input: Array) -> Array:
        """Return the input in the dtype to compute in, with at least one axis."""
        return np.atleast_1d(widened(cast(input, self._dtype(input.dtype))))

    def _finished(self, result: Array, input: Array) -> Array:
        return cast(result.reshape(input.shape), self._dtype(input.dtype))


@register("F.softmax")
class Softmax(_AlongAxis):
    """exp(x) / sum(exp(x)) along dim."""

    def forward(self, input: Array) -> Array:
        return self._finished(softmax(self._prepared(input), self.axis(input.ndim)), input)


@register("F.softmin")
class Softmin(Composite):
    """exp(-x) / sum(exp(-x)) along dim."""

    dim: int | None = None
    annotations: Annotations = NO_ANNOTATIONS

    def compose(self, call: CallLayer, input: Array) -> Any:
        return call(Softmax(dim=self.dim, annotations=self.annotations), formula(call, "neg(@0)", input))


@register("F.log_softmax")
class LogSoftmax(_AlongAxis):
    """x - log(sum(exp(x))) along dim."""

    def forward(self, input: Array) -> Array:
        axis = self.axis(input.ndim)
        with np.errstate(all="ignore"):
            shifted = _shifted(self._prepared(input), axis)
            return self._finished(shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True)), input)


def softmax(x: Array, axis: int) -> Array:
    """Compute exp(x) / sum(exp(x)) along an axis of a floating array of rank 1 or more."""
    with np.errstate(all="ignore"):
        exponentials = np.exp(_shifted(x, axis))
        return np.asarray(exponentials / exponentials.sum(axis=axis, keepdims=True))


def _shifted(x: Array, axis: int) -> Array:
    """Return x minus its maximum along the axis."""
    return np.asarray(x - x.max(axis=axis, keepdims=True, initial=-np.inf))
