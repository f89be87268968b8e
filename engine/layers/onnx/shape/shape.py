"""Shape operators."""

from __future__ import annotations

import numpy as np

from engine.ir.sizes import size_array
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.operands.precision import INT64
from engine.tensor import Array, TensorSpec


@register("Shape")
class OnnxShape(Layer):
    """Sizes of the axes from ``start`` up to ``end``."""

    does_arithmetic = False

    start: int = 0
    end: int | None = None

    def infer(self, input: TensorSpec) -> TensorSpec:
        sizes = input.shape[self.start : self.end]
        return TensorSpec((len(sizes),), INT64, None if None in sizes else size_array(sizes))

    def forward(self, input: Array) -> Array:
        return np.array(input.shape[self.start : self.end], INT64)


@register("Size")
class OnnxSize(Layer):
    """Number of elements."""

    def infer(self, input: TensorSpec) -> TensorSpec:
        size = input.size
        return TensorSpec((), INT64, None if size is None else size_array(size))

    def forward(self, input: Array) -> Array:
        return np.asarray(input.size, INT64)
