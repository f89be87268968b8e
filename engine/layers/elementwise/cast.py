"""Conversions between dtypes: fractions are truncated, integers wrap, nonzero values are True."""

from __future__ import annotations

from typing import Final, Literal

import numpy as np

from engine.errors import ShapeError
from engine.ir.ratios import truncate
from engine.ir.sizes import has_sizes
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.operands.conversion import converted
from engine.promotion import cast, category
from engine.tensor import Array, DType, Number, TensorSpec, dtype_name

_SIZES: Final = (np.dtype(np.int64), np.dtype(np.bool_))


@register("Tensor.to", ignored=("copy", "memory_format", "device", "non_blocking", "layout", "pin_memory"))
class To(Layer):
    """The input in another dtype; unchanged without one.

    Optimisation level 0 passes Python numbers, which PyTorch has as 0-dim tensors. Sizes (int64, bool) stay numbers, so
    that shapes can be inferred before a run; others become 0-dim tensors and promote as such.

    Parameters:
        saturate: values out of range of an 8-bit float become its largest; else infinite or NaN (ONNX).
        round_mode: rounding to powers of two, which float8_e8m0fnu holds (ONNX).
    """

    does_arithmetic = False
    takes_sizes = True

    dtype: DType | None = None
    saturate: bool = True
    round_mode: Literal["up", "down", "nearest"] = "up"

    def infer(self, input: TensorSpec | Number) -> TensorSpec | Number:
        if isinstance(input, TensorSpec):
            return TensorSpec(input.shape, self.dtype or input.dtype)
        result = self._number(input)
        return TensorSpec((), self.dtype or result.dtype) if isinstance(result, np.ndarray) else result

    def forward(self, input: Array | Number) -> Array | Number:
        if not isinstance(input, np.ndarray):
            return self._number(input)
        return converted(input, self.dtype or input.dtype, self.saturate, self.round_mode)

    def _number(self, number: Number) -> Array | Number:
        category(number)
        if self.dtype is None:
            return number
        if has_sizes(number) and self.dtype == np.int64:
            whole: Number = truncate(number)
            return whole
        tensor = cast(number, self.dtype)
        if self.dtype not in _SIZES:
            return tensor
        size: Number = tensor.item()
        return size


@register("prims::view_element_type", positional=("input", "dtype"))
class ViewElementType(Layer):
    """The bits of the input read as another dtype of the same width."""

    does_arithmetic = False

    dtype: DType

    def infer(self, input: TensorSpec) -> TensorSpec:
        if self.dtype.itemsize != input.dtype.itemsize:
            raise ShapeError("the widths differ", found=dtype_name(input.dtype), expected=dtype_name(self.dtype))
        return TensorSpec(input.shape, self.dtype)

    def forward(self, input: Array) -> Array:
        spec = self.infer(TensorSpec(input.shape, input.dtype))
        return np.ascontiguousarray(input).view(spec.dtype).reshape(input.shape)


@register("Tensor.type_as")
class TypeAs(Layer):
    """The input in the dtype of other."""

    does_arithmetic = False
    takes_sizes = True

    def infer(self, input: TensorSpec, other: TensorSpec) -> TensorSpec:
        return TensorSpec(input.shape, other.dtype)

    def forward(self, input: Array, other: Array) -> Array:
        return cast(input, other.dtype)
