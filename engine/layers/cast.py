"""Conversions between dtypes: fractions are cut towards zero, integers wrap, what is not zero is True."""

from __future__ import annotations

from engine.layers.layer import Layer
from engine.layers.registry import register
from engine.promotion import cast
from engine.tensor import Array, DType, TensorSpec


@register("Tensor.to", ignored=("copy", "memory_format", "device", "non_blocking", "layout", "pin_memory"))
class To(Layer):
    """input in another dtype; without one, input."""

    dtype: DType | None = None

    def infer(self, input: TensorSpec) -> TensorSpec:
        return TensorSpec(input.shape, self.dtype or input.dtype)

    def forward(self, input: Array) -> Array:
        return cast(input, self.dtype or input.dtype)

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
