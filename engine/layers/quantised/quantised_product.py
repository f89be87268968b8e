"""Convolution, linear map and concatenation of quantised tensors.

The products of the integers are summed exactly (in float64, whose 53 bits no such sum exceeds), the bias is added in
units of the products, and the sum is converted to the output's scale in float32 and rounded, like in PyTorch's kernels.

A weight has a scale and a zero point for every output channel. The converter does not write the scale of a weight that
is quantised as a whole; such a file cannot be run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, ClassVar

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.convolution.conv import Conv
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.linear.linear import Linear
from engine.layers.operands.axes import may_match
from engine.layers.operands.bounds import extremes
from engine.layers.operands.spatial import Operand
from engine.layers.quantised.quantised import Quantised, as_quantised, quantised, rounded
from engine.layers.shape.join import Cat
from engine.tensor import Array, TensorSpec, format_shape

_BANK = ("out_channels",)
_ROWS = ("out_features",)
_SCALED = {"weight_q_per_channel_scales": _BANK, "weight_q_per_channel_zero_points": _BANK, "bias": _BANK}


class _QuantisedProduct(Layer):
    """Base of products of dequantised operands, quantised with scale and zero_point.

    Dtypes:
        input quantised, weight int8, bias float32; the result is quantised in the input's dtype.
    """

    plain: ClassVar[type[Layer]]
    """The layer that computes the sums of products; it has the same parameters."""

    scale: float
    zero_point: int

    def __post_init__(self) -> None:
        _check_scale(self.scale)
        self._product()  # checks the operands

    def _product(self) -> Layer:
        return self.plain(**{each.name: getattr(self, each.name) for each in fields(self.plain)})

    def infer(
        self,
        input: Operand,
        weight: Operand,
        bias: Operand | None = None,
        weight_q_per_channel_scales: Operand | None = None,
        weight_q_per_channel_zero_points: Operand | None = None,
    ) -> TensorSpec:
        _check(weight, bias, weight_q_per_channel_scales, weight_q_per_channel_zero_points)
        spec = self._product().infer(TensorSpec(input.shape, input.dtype), TensorSpec(weight.shape, input.dtype))
        return TensorSpec(spec.shape, input.dtype)

    def forward(
        self,
        input: Array,
        weight: Array,
        bias: Array | None = None,
        weight_q_per_channel_scales: Array | None = None,
        weight_q_per_channel_zero_points: Array | None = None,
    ) -> Array:
        given, zeros = as_quantised(input), weight_q_per_channel_zero_points
        distances = weight.astype(np.float64) - _by_channel(zeros, weight.ndim - 1)
        sums = self._product().forward(given.distances, distances)
        # Results of a convolution have spatial axes after the channels, as many as the weight.
        scales, shifts = (_by_channel(each, weight.ndim - 2) for each in (weight_q_per_channel_scales, bias))
        return quantised(_requantised(sums, given, scales, shifts, self), self.scale, self.zero_point)


@register("nn.quantized.Conv2d", presets={"spatial_rank": 2}, flags={"bias": ("bias",)}, shapes=_SCALED)
class QuantisedConv2d(_QuantisedProduct, Conv):
    """nn.Conv2d of dequantised operands, quantised with scale and zero_point.

    Shapes:
        as nn.Conv2d; the weight's scales and zero points (O,)
    """

    plain = Conv
    canonical_layers = ()


@register("nn.quantized.Linear", ignored=("in_features", "out_features", "bias"), shapes={
    "weight": ("out_features", "in_features"), **dict.fromkeys(_SCALED, _ROWS)})  # fmt: skip
class QuantisedLinear(_QuantisedProduct, Linear):
    """nn.Linear of dequantised operands, quantised with scale and zero_point.

    Shapes:
        input (..., I), weight (O, I), bias, the weight's scales and zero points (O,)  ->  (..., O)
    """

    plain = Linear


@register("nn.quantized.cat")
class QuantisedCat(Cat):
    """Quantised tensors concatenated along dim, converted to one scale and zero point.

    Shapes:
        equal except for dim
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


def _requantised(sums: Array, input: Quantised, scales: Array, bias: Array, layer: _QuantisedProduct) -> Array:
    """Return sums of products of integers as integers of the output's scale."""
    unit = np.float32(input.scale) * scales.astype(np.float32)
    with np.errstate(all="ignore"):
        exact = sums.astype(np.float32) + bias.astype(np.float32) / unit
        nearest = np.rint(exact * (unit / np.float32(layer.scale))).astype(np.float64) + layer.zero_point
    return np.asarray(np.clip(nearest, *extremes(input.dtype)).astype(input.dtype))


def _by_channel(vector: Any, axes: int) -> Array:
    """Return a number for every channel, to be broadcast over so many axes after the channels."""
    return np.asarray(vector.reshape(-1, *[1] * axes))


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
