"""Quantisation, dequantisation, and fake quantisation, which does both."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from engine.errors import ParameterError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.operands.axes import checked_axis, replaced
from engine.layers.operands.fitting import check_shape
from engine.layers.quantised.quantised import FLOAT32, as_quantised, integers, places, quantised, rounded
from engine.promotion import cast
from engine.tensor import Array, DType, TensorSpec, dtype_name

_INTEGERS: Final = (np.dtype(np.int8), np.dtype(np.uint8), np.dtype(np.int32))


@register("torch.quantize_per_tensor", positional=("input", "scale", "zero_point", "dtype"))
class QuantizePerTensor(Layer):
    """round(x / scale) + zero_point, halves to even, clipped to the integer dtype."""

    scale: float
    zero_point: int
    dtype: DType

    def __post_init__(self) -> None:
        if self.dtype not in _INTEGERS or self.scale <= 0:
            raise ParameterError(
                "cannot quantise",
                found=f"{dtype_name(self.dtype)} with scale {self.scale}",
                expected="qint8, quint8 or qint32 and a positive scale",
            )

    def infer(self, input: TensorSpec) -> TensorSpec:
        return TensorSpec(input.shape, self.dtype)

    def forward(self, input: Array) -> Array:
        return quantised(rounded(input, self.scale, self.zero_point, self.dtype), self.scale, self.zero_point)


@register("torch.dequantize")
class Dequantize(Layer):
    """(q - zero_point) * scale, float32.

    Raises:
        ShapeError: for a tensor that was not quantised.
    """

    def infer(self, input: TensorSpec) -> TensorSpec:
        return TensorSpec(input.shape, FLOAT32)

    def forward(self, input: Array) -> Array:
        given = as_quantised(input)
        return np.asarray(given.distances.astype(np.float32) * np.float32(given.scale))


@register("aten::int_repr")
class IntRepr(Layer):
    """The integers of a quantised tensor."""

    def infer(self, input: TensorSpec) -> TensorSpec:
        return input

    def forward(self, input: Array) -> Array:
        return integers(input)


@register("aten::fake_quantize_per_tensor_affine")
class FakeQuantize(Layer):
    """x rounded to the nearest value that quant_min to quant_max represent."""

    scale: float
    zero_point: int
    quant_min: int
    quant_max: int

    def infer(self, input: TensorSpec) -> TensorSpec:
        return input

    def forward(self, input: Array) -> Array:
        nearest = places(input, np.float32(self.scale), self.zero_point, self.quant_min, self.quant_max)
        return cast((nearest - self.zero_point).astype(np.float32) * np.float32(self.scale), input.dtype)


@register(
    "aten::fake_quantize_per_channel_affine",
    positional=("input", "scale", "zero_point", "axis", "quant_min", "quant_max"),
)
class FakeQuantizeChannels(Layer):
    """Like fake_quantize_per_tensor with a scale and a zero point for every slice of one axis."""

    axis: int
    quant_min: int
    quant_max: int

    def infer(self, input: TensorSpec, scale: TensorSpec, zero_point: TensorSpec) -> TensorSpec:
        self._along(input.shape, scale.shape, zero_point.shape)
        return input

    def forward(self, input: Array, scale: Array, zero_point: Array) -> Array:
        shape = self._along(input.shape, scale.shape, zero_point.shape)
        scales, zeros = cast(scale, FLOAT32).reshape(shape), zero_point.reshape(shape)
        nearest = places(input, scales, zeros, self.quant_min, self.quant_max)
        return cast((nearest - zeros).astype(np.float32) * scales, input.dtype)

    def _along(self, input: Any, scale: Any, zero_point: Any) -> Any:
        """Return the shape in which scale and zero point are broadcast against the input."""
        axis = checked_axis(self.axis, len(input))
        for name, found in (("scale", scale), ("zero_point", zero_point)):
            check_shape(found, input[axis : axis + 1], f"{name} does not fit")
        return replaced((1,) * len(input), axis, scale[0])
