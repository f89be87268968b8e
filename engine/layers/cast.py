"""Conversions between dtypes: fractions are cut towards zero, integers wrap, what is not zero is True."""

from __future__ import annotations

import numpy as np

from engine.layers.layer import Layer
from engine.layers.registry import register
from engine.promotion import cast, category
from engine.tensor import Array, DType, Number, TensorSpec


@register("Tensor.to", ignored=("copy", "memory_format", "device", "non_blocking", "layout", "pin_memory"))
class To(Layer):
    """input in another dtype; without one, input. A Python number stays one, rounded as the dtype would."""

    dtype: DType | None = None

    def infer(self, input: TensorSpec | Number) -> TensorSpec | Number:
        if not isinstance(input, TensorSpec):
            return self._number(input)
        return TensorSpec(input.shape, self.dtype or input.dtype)

    def forward(self, input: Array | Number) -> Array | Number:
        if not isinstance(input, np.ndarray):
            return self._number(input)
        return cast(input, self.dtype or input.dtype)

    def _number(self, number: Number) -> Number:
        category(number)
        rounded: Number = number if self.dtype is None else cast(number, self.dtype).astype(object).item()
        return rounded

    def flops(self, output: object, *operands: object) -> int:
        return 0


@register("Tensor.type_as")
class TypeAs(Layer):
    """input in the dtype of other."""

    def infer(self, input: TensorSpec, other: TensorSpec) -> TensorSpec:
        return TensorSpec(input.shape, other.dtype)

    def forward(self, input: Array, other: Array) -> Array:
        return cast(input, other.dtype)

    def flops(self, output: object, *operands: object) -> int:
        return 0
