"""Convolution, linear map and concatenation of quantised tensors.

The products of the integers are added up exactly (in float64, whose 53 bits no such sum exceeds), the bias is added in
units of the products, and the sum is brought to the output's scale in float32 and rounded, as PyTorch's own kernels do.

A weight has a scale and a zero point for every output channel. Of one quantised as a whole the converter does not write
the scale; such a file cannot be run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.convolution.conv import Conv, correlate
from engine.layers.definition.registry import register
from engine.layers.linear.linear import Linear
from engine.layers.operands.axes import may_match
from engine.layers.operands.spatial import Operand
from engine.layers.quantised.quantised import Quantised, as_quantised, limits, quantised, rounded
from engine.layers.shape.join import Cat
from engine.tensor import Array, TensorSpec, format_shape

_BANK = ("out_channels",)
_ROWS = ("out_features",)
_SCALED = {"weight_q_per_channel_scales": _BANK, "weight_q_per_channel_zero_points": _BANK, "bias": _BANK}


@register("nn.quantized.Conv2d", presets={"spatial_rank": 2}, flags={"bias": ("bias",)}, shapes=_SCALED)
class QuantisedConv2d(Conv):
    """nn.Conv2d of what the integers stand for, quantised with scale and zero_point.

    Shapes:
        as nn.Conv2d; the weight's scales and zero points (O,)
    Dtypes:
        input quantised, weight int8, bias float32; the result is quantised in the input's dtype.
    """

    scale: float
    zero_point: int

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_scale(self.scale)

    def infer(
        self,
        input: Operand,
        weight: Operand,
        bias: Operand | None = None,
        weight_q_per_channel_scales: TensorSpec | None = None,
        weight_q_per_channel_zero_points: TensorSpec | None = None,
    ) -> TensorSpec:
        _check(weight, bias, weight_q_per_channel_scales, weight_q_per_channel_zero_points)
        spec = super().infer(input, TensorSpec(weight.shape, input.dtype))
        return TensorSpec(spec.shape, input.dtype)

    def forward(
        self,
        input: Array,
        weight: Array,
        bias: Array | None = None,
        weight_q_per_channel_scales: Array | None = None,
        weight_q_per_channel_zero_points: Array | None = None,
    ) -> Array:
        given = as_quantised(input)
        scales, zeros = weight_q_per_channel_scales, weight_q_per_channel_zero_points
        self.infer(given, weight, bias, _spec(scales), _spec(zeros))
        bank = _distances(weight, zeros)
        padding = [(0, 0), (0, 0), *self.padding_of(weight.shape[2:])]
        x = np.pad(self.batched(given.distances), padding)  # the zero point stands for zero
        sums = correlate(x, bank, self.windows_of(weight.shape[2:]), self.groups)
        result = np.moveaxis(_requantised(np.moveaxis(sums, 1, -1), given, scales, bias, self), -1, 1)
        return quantised(result.reshape(*self.lead(given), *result.shape[1:]), self.scale, self.zero_point)


@register("nn.quantized.Linear", ignored=("in_features", "out_features", "bias"), shapes={
    "weight": ("out_features", "in_features"), **dict.fromkeys(_SCALED, _ROWS)})  # fmt: skip
class QuantisedLinear(Linear):
    """nn.Linear of what the integers stand for, quantised with scale and zero_point.

    Shapes:
        input (..., I), weight (O, I), bias, the weight's scales and zero points (O,)  ->  (..., O)
    Dtypes:
        input quantised, weight int8, bias float32; the result is quantised in the input's dtype.
    """

    scale: float
    zero_point: int

    def __post_init__(self) -> None:
        _check_scale(self.scale)

    def infer(
        self,
        input: TensorSpec,
        weight: TensorSpec,
        bias: TensorSpec | None = None,
        weight_q_per_channel_scales: TensorSpec | None = None,
        weight_q_per_channel_zero_points: TensorSpec | None = None,
    ) -> TensorSpec:
        _check(weight, bias, weight_q_per_channel_scales, weight_q_per_channel_zero_points)
        return TensorSpec(super().infer(input, weight, bias).shape, input.dtype)

    def forward(
        self,
        input: Array,
        weight: Array,
        bias: Array | None = None,
        weight_q_per_channel_scales: Array | None = None,
        weight_q_per_channel_zero_points: Array | None = None,
    ) -> Array:
        given = as_quantised(input)
        scales, zeros = weight_q_per_channel_scales, weight_q_per_channel_zero_points
        self.infer(_known(given), _known(weight), _spec(bias), _spec(scales), _spec(zeros))
        sums = given.distances @ _distances(weight, zeros).T
        return quantised(_requantised(sums, given, scales, bias, self), self.scale, self.zero_point)


@register("nn.quantized.cat", "quantized::cat")
class QuantisedCat(Cat):
    """Quantised tensors one after the other along dim, brought to one scale and zero point.

    Shapes:
        equal but for dim
    """

    scale: float
    zero_point: int

    def __post_init__(self) -> None:
        _check_scale(self.scale)

    def _join(self, tensors: Sequence[Array]) -> Array:
        parts = [_rescaled(as_quantised(tensor), self.scale, self.zero_point) for tensor in tensors]
        return quantised(super()._join(parts), self.scale, self.zero_point)


def _rescaled(tensor: Quantised, scale: float, zero_point: int) -> Array:
    values = tensor.distances.astype(np.float32) * np.float32(tensor.scale)
    return rounded(values, scale, zero_point, tensor.dtype)


def _requantised(sums: Array, input: Quantised, scales: Any, bias: Any, layer: Any) -> Array:
    """Sums of products of integers, output channels last, as integers of the output's scale.

    Args:
        layer: has the scale and zero_point of the output.
    """
    unit = np.float32(input.scale) * scales.astype(np.float32)
    with np.errstate(all="ignore"):
        exact = sums.astype(np.float32) + bias.astype(np.float32) / unit
        nearest = np.rint(exact * (unit / np.float32(layer.scale))).astype(np.float64) + layer.zero_point
    return np.asarray(np.clip(nearest, *limits(input.dtype)).astype(input.dtype))


def _distances(weight: Array, zero_points: Any) -> Array:
    """The integers of a weight less their zero points, channels first."""
    return np.asarray(weight.astype(np.float64) - zero_points.reshape(-1, *[1] * (weight.ndim - 1)))


def _check(weight: Operand, bias: Operand | None, scales: Any, zero_points: Any) -> None:
    if weight.dtype != np.int8:
        raise ParameterError("attribute 'weight' is not quantised", found=weight.dtype, expected="int8")
    if bias is None:
        raise ParameterError("attribute 'bias' is missing")
    if scales is None or zero_points is None:
        expected = "a weight quantised per channel, with its scales and zero points"
        raise ParameterError("the scale of attribute 'weight' is not in the file", expected=expected)
    for name, operand in (("scales", scales), ("zero_points", zero_points), ("bias", bias)):
        if not may_match(operand.shape, weight.shape[:1]):
            fitting = format_shape(weight.shape[:1])
            raise ShapeError(f"{name} do not fit the weight", found=format_shape(operand.shape), expected=fitting)


def _check_scale(scale: float) -> None:
    if not scale > 0:
        raise ParameterError("scale must be positive", found=scale)


def _known(operand: Array) -> TensorSpec:
    return TensorSpec(operand.shape, operand.dtype)


def _spec(operand: Array | None) -> TensorSpec | None:
    return None if operand is None else _known(operand)
