"""Base classes of element-wise layers: the output has the input's shape."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from engine.layers.definition.layer import Layer
from engine.layers.operands.precision import widened
from engine.promotion import cast, float_dtype
from engine.tensor import Array, TensorSpec


class Elementwise(Layer):
    """Base of layers whose output has the input's shape and dtype."""

    def infer(self, input: TensorSpec, *others: object) -> TensorSpec:
        return input


class UnaryFunction(Layer):
    """Base of functions of one number with fractional values.

    Dtypes:
        floating and complex as they are, half precision computed in float32 and rounded once; integers give float32.
    """

    def infer(self, input: TensorSpec) -> TensorSpec:
        return TensorSpec(input.shape, float_dtype(input.dtype))

    def forward(self, input: Array) -> Array:
        with np.errstate(all="ignore"):
            result = self.compute(np.atleast_1d(widened(input)))
        return cast(result.reshape(input.shape), float_dtype(input.dtype))

    @abstractmethod
    def compute(self, x: Array) -> Array:
        """Return the function's values at every x, an array of rank 1 or more in the dtype computed in."""
