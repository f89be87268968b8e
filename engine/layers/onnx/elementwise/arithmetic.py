"""Arithmetic that differs from PyTorch's: shifts, conversions, powers, cumulative sums and products."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from engine.errors import ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.elementwise.arithmetic import Div
from engine.layers.elementwise.cast import To
from engine.layers.linear.square import check_square
from engine.layers.onnx.operands.adapter import Adapter, dtype_of, shape_of
from engine.layers.onnx.operands.dtypes import converted, onnx_dtype
from engine.layers.operands.precision import widened
from engine.promotion import cast
from engine.tensor import BFLOAT16, Array, Number, TensorSpec, dtype_name


@register("Div")
class OnnxDiv(Adapter):
    """Quotient; truncated towards zero for integers."""

    canonicalises = False
    takes_sizes = True
    canonical_layers = (Div,)

    def canonical(self, input: Any, other: Any) -> Layer:
        kinds = {dtype_of(each, np.dtype(np.float32)).kind for each in (input, other)}
        return Div(rounding_mode="trunc" if kinds <= set("iu") else None)

    def forward(self, input: Array | Number, other: Array | Number) -> Any:
        return self.run(input, other)


@register("Cast")
class OnnxCast(Adapter):
    """Conversion to another dtype: fractions are truncated towards zero, nonzero numbers become True."""

    does_arithmetic = False
    takes_sizes = True
    canonicalises = False
    canonical_layers = (To,)

    to: int
    saturate: bool = True
    round_mode: Literal["up", "down", "nearest"] = "up"

    def __post_init__(self) -> None:
        _ = onnx_dtype(self.to)

    def infer(self, input: Any) -> TensorSpec:
        return TensorSpec(shape_of(input), onnx_dtype(self.to))

    def canonical(self, *operands: Any) -> Layer:
        dtypes = [onnx_dtype(self.to), *(each.dtype for each in operands if isinstance(each, TensorSpec))]
        if len(dtypes) != 2 or any(each.kind not in "biuf" and each != BFLOAT16 for each in dtypes):
            raise NotImplementedError
        return To(dtype=dtypes[0])

    def forward(self, input: Array | Number) -> Array:
        return converted(input, onnx_dtype(self.to), self.saturate, self.round_mode)


@register("BitCast")
class BitCast(Layer):
    """Reinterpretation of the bits as another dtype of the same width."""

    to: int

    def __post_init__(self) -> None:
        _ = onnx_dtype(self.to)

    def infer(self, input: TensorSpec) -> TensorSpec:
        dtype = onnx_dtype(self.to)
        if dtype.itemsize != input.dtype.itemsize:
            raise ShapeError("the widths differ", found=dtype_name(input.dtype), expected=dtype_name(dtype))
        return TensorSpec(input.shape, dtype)

    def forward(self, input: Array) -> Array:
        spec = self.infer(TensorSpec(input.shape, input.dtype))
        return np.ascontiguousarray(input).view(spec.dtype).reshape(input.shape)


@register("Det")
class Det(Layer):
    """Determinants of square matrices: input (..., M, M) -> (...)."""

    def infer(self, input: TensorSpec) -> TensorSpec:
        check_square(input.shape)
        return TensorSpec(input.shape[:-2], input.dtype)

    def forward(self, input: Array) -> Array:
        self.infer(TensorSpec(input.shape, input.dtype))
        return cast(np.asarray(np.linalg.det(widened(input))), input.dtype)
