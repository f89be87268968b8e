"""Matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.errors import ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.linear.matmul import Matmul
from engine.layers.onnx.operands.adapter import as_tensor
from engine.layers.operands.precision import INT64
from engine.promotion import broadcast_shapes, cast
from engine.tensor import Array, DType, Number, TensorSpec, format_shape

_INT32: DType = np.dtype(np.int32)
_FLOAT32: DType = np.dtype(np.float32)


@register("MatMulInteger", positional=("a", "b", "a_zero_point", "b_zero_point"))
class MatMulInteger(Layer):
    """Product of 8-bit integer matrices with their zero points subtracted, in int32 or the nearest float32.

    The core multiplies bytes only as PyTorch's quantised tensors, with one scale.

    Shapes:
        a (..., M, K), b (..., K, N); zero points one number, or a_zero_point (..., M[, 1]) and b_zero_point (..., N)
    """

    as_float: bool = False

    def infer(self, a: TensorSpec, b: TensorSpec, *zero_points: object) -> TensorSpec:
        spec = Matmul().infer(a, TensorSpec(b.shape, a.dtype))
        return TensorSpec(spec.shape, _FLOAT32 if self.as_float else _INT32)

    def forward(
        self,
        a: Array,
        b: Array,
        a_zero_point: Array | Number | None = 0,
        b_zero_point: Array | Number | None = 0,
    ) -> Array:
        left = centred_rows(a, a_zero_point, "a_zero_point")
        right = centred_columns(b, b_zero_point, "b_zero_point")
        sums = cast(exact_product(left, right), _INT32)
        return cast(sums, _FLOAT32) if self.as_float else sums


def exact_product(left: Array, right: Array) -> Array:
    """Return the product of small-integer matrices in int64; computed in float64, which is exact here and faster."""
    wide = np.dtype(np.float64)
    return np.asarray(np.matmul(left.astype(wide), right.astype(wide)).astype(np.int64))


def centred_rows(a: Array, zero_point: Any, name: str) -> Array:
    """Return a - zero_point in int64; a vector has one number per row."""
    zero = cast(as_tensor(zero_point, INT64, name), INT64)
    if zero.ndim == 1 and zero.size > 1:
        zero = zero[:, None]
    return _centred(a, zero.reshape(()) if zero.size == 1 else zero, name)


def centred_columns(b: Array, zero_point: Any, name: str) -> Array:
    """Return b - zero_point in int64; a vector has one number per column."""
    zero = cast(as_tensor(zero_point, INT64, name), INT64)
    return _centred(b, zero.reshape(()) if zero.size == 1 else zero, name)


def _centred(x: Array, zero: Array, name: str) -> Array:
    if broadcast_shapes(x.shape, zero.shape) != x.shape:
        raise ShapeError(f"{name} does not fit", found=format_shape(zero.shape), expected=format_shape(x.shape))
    return np.asarray(x.astype(np.int64) - zero)
