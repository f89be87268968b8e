"""Quantisation: small integers q represent (q - zero_point) * scale, with scales and zero points as operands.

The converter drops one-element constants of 8 or 16 bits: a zero point of a whole tensor becomes None and is refused at
run time; zero points per channel are kept.
"""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.definition.layer import NO_ANNOTATIONS, Annotations, Layer
from engine.layers.definition.registry import register
from engine.layers.onnx.operands.adapter import as_tensor, check_given, dtype_of
from engine.layers.onnx.operands.dtypes import DTYPES, SMALL_INTEGERS, onnx_dtype
from engine.layers.operands.axes import checked_axis
from engine.layers.operands.bounds import extremes
from engine.layers.operands.conversion import SATURATING, converted
from engine.layers.operands.precision import widened
from engine.promotion import cast
from engine.tensor import Array, DType, TensorSpec, dtype_name, format_shape

_FLOAT32: Final[DType] = np.dtype(np.float32)
_UINT8: Final[DType] = np.dtype(np.uint8)
_INT32: Final[DType] = np.dtype(np.int32)
FLOAT4: Final = DTYPES[23]


def saturated(x: Array, dtype: DType) -> Array:
    """Round to the nearest integers of a dtype, halves to even, with saturation.

    Raises:
        ShapeError: the dtype is not an integer type.
    """
    if dtype in SMALL_INTEGERS:
        limits = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
        low, high = float(limits.min), float(limits.max)
    elif dtype.kind in "iu":
        low, high = map(float, extremes(dtype))
    else:
        raise ShapeError("cannot quantise to this dtype", found=dtype_name(dtype), expected="integers")
    whole = np.clip(np.nan_to_num(np.rint(x), nan=0.0), low, high)
    return cast(np.asarray(whole), dtype) if dtype.kind in "iu" else np.asarray(whole.astype(np.int8).astype(dtype))


class _Blocks(Layer):
    """Base of operators with a scale per tensor, per slice of an axis, or per block of an axis."""

    axis: int = 1
    block_size: int = 0

    def __post_init__(self) -> None:
        if self.block_size < 0:
            raise ParameterError("block_size must not be negative", found=self.block_size)

    def spread(self, values: Array, x: Array, name: str) -> Array:
        """Return scales or zero points in a shape that broadcasts to x."""
        if values.size == 1 and values.ndim < 2:
            return values.reshape(())
        axis = checked_axis(self.axis, x.ndim)
        if values.ndim == 1 and len(values) == x.shape[axis]:
            return values.reshape(-1, *(1,) * (x.ndim - 1 - axis))
        if self.block_size and values.ndim == x.ndim and values.shape[axis]:
            places = np.arange(x.shape[axis]) // self.block_size
            if places.size and places[-1] < values.shape[axis]:
                spread = values.take(places, axis)
                if spread.shape == x.shape:
                    return spread
        raise ShapeError(f"{name} does not fit", found=format_shape(values.shape), expected=format_shape(x.shape))


@register("QuantizeLinear", positional=("input", "scale", "zero_point"), ignored=("precision",))
class QuantizeLinear(_Blocks):
    """round(x / scale) + zero_point, halves to even, saturated; uint8 by default.

    Quantised tensors of the core have no blocks, and neither 4-bit nor float codes.
    """

    output_dtype: int = 0
    saturate: bool = True
    annotations: Annotations = NO_ANNOTATIONS

    def infer(self, input: TensorSpec, scale: Any, zero_point: Any = 0) -> TensorSpec:
        return TensorSpec(input.shape, self.result_dtype(zero_point))

    def forward(self, input: Array, scale: Any, zero_point: Any = 0) -> Array:
        dtype = self.result_dtype(zero_point)
        x = widened(input)
        step = self.spread(cast(as_tensor(scale, x.dtype, "scale"), x.dtype), x, "scale")
        if dtype in SATURATING or dtype == FLOAT4:
            with np.errstate(all="ignore"):
                return converted(np.asarray(x / step), dtype, self.saturate)
        shift = self.spread(as_tensor(zero_point, dtype, "zero_point"), x, "zero_point")
        with np.errstate(all="ignore"):
            return saturated(np.rint(x / step).astype(np.float64) + shift.astype(np.float64), dtype)

    def result_dtype(self, zero_point: Any) -> DType:
        noted = self.annotations.outputs[0]
        if self.output_dtype:
            return onnx_dtype(self.output_dtype)
        return dtype_of(zero_point, noted.dtype if noted is not None else _UINT8)


@register("DequantizeLinear", positional=("input", "scale", "zero_point"))
class DequantizeLinear(_Blocks):
    """(q - zero_point) * scale, in the dtype of the scale.

    Quantised tensors of the core have no blocks, and neither 4-bit nor float codes.
    """

    output_dtype: int = 0

    def infer(self, input: TensorSpec, scale: Any, zero_point: Any = 0) -> TensorSpec:
        return TensorSpec(input.shape, self.result_dtype(scale))

    def forward(self, input: Array, scale: Any, zero_point: Any = 0) -> Array:
        check_given(zero_point, "zero_point")
        if input.dtype in SATURATING or input.dtype == FLOAT4:
            step = self.spread(as_tensor(scale, _FLOAT32, "scale").astype(np.float32), input, "scale")
            return cast(np.asarray(input.astype(np.float32) * step), self.result_dtype(scale))
        if input.dtype.kind not in "iu" and input.dtype not in SMALL_INTEGERS:
            raise ShapeError("input is not quantised", found=dtype_name(input.dtype), expected="integers")
        step = self.spread(as_tensor(scale, _FLOAT32, "scale"), input, "scale")
        shift = self.spread(as_tensor(zero_point, input.dtype, "zero_point"), input, "zero_point")
        with np.errstate(all="ignore"):
            exact = widened(cast(input.astype(np.int64) - shift.astype(np.int64), np.dtype(np.float64)))
            dtype = self.result_dtype(scale)
            wide = np.dtype(np.float64) if dtype == np.float64 else _FLOAT32
            return cast(cast(exact, wide) * cast(step, wide), dtype)

    def result_dtype(self, scale: Any) -> DType:
        return onnx_dtype(self.output_dtype) if self.output_dtype else dtype_of(scale, _FLOAT32)
