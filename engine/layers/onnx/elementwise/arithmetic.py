"""Operators on elements and matrices that PyTorch has under other names or not at all."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.errors import ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.linear.square import check_square
from engine.layers.onnx.operands.dtypes import onnx_dtype
from engine.layers.operands.precision import widened
from engine.promotion import cast
from engine.tensor import Array, TensorSpec, dtype_name


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


@register("onnx.Dropout")
class TrainingDropout(Layer):
    """The input; refuses to run where a run asks for dropout at random. F.dropout does not take this from a run."""

    def infer(self, input: TensorSpec, ratio: Any, training_mode: Any) -> TensorSpec:
        return input

    def forward(self, input: Array, ratio: Any, training_mode: Any) -> Array:
        if np.any(training_mode) and np.any(ratio):
            raise ShapeError("dropout at random is for training", found="training_mode = 1", expected="0")
        return input
