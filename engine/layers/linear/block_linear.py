"""Linear maps whose weights are integers of a few bits, in blocks with a scale each."""

from __future__ import annotations

from typing import Final

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.linear.linear import apply_linear
from engine.layers.operands.axes import may_equal
from engine.layers.operands.fitting import check_shape
from engine.layers.operands.precision import working_dtype
from engine.promotion import Category, cast, dtype_category
from engine.tensor import Array, DType, Shape, TensorSpec, dtype_name, format_shape

_BYTE: Final[DType] = np.dtype(np.uint8)
WIDTHS: Final = (2, 4, 8)
"""Bits that a code may have."""


@register("engine.BlockLinear", flags={"zero_points": ("zero_points",), "bias": ("bias",)})
class BlockLinear(Layer):
    """x @ w.T + bias, where w = (code - zero_point) * scale with a scale and a zero point for each block of a row.

    A byte of ``weight`` holds 8 / bits unsigned codes, that of the first feature in the lowest bits. Codes behind the
    last input feature are ignored.

    Shapes:
        input (..., I), weight (O, B, block_size * bits / 8), scales and zero_points (O, B), bias (O,)  ->  (..., O)
        B = ceil(I / block_size)
    Dtypes:
        weight uint8, scales any float, zero_points any float or uint8, the rest any float; the result is as the input.
        Weights have the dtype that the input is computed in: float32 for 16-bit floats.
    Parameters:
        bits: of a code: 2, 4 or 8.
        block_size: input features of a block.
        zero_points, bias: True if these tensors are stored with the operator.
    Source:
        com.microsoft.MatMulNBits; without zero points they are 2 ** (bits - 1).
    """

    bits: int
    block_size: int

    def __post_init__(self) -> None:
        if self.bits not in WIDTHS:
            raise ParameterError("bits is not supported", found=self.bits, expected="2, 4 or 8")
        if self.block_size < 1 or self.block_size * self.bits % 8:
            raise ParameterError("block_size does not fit", found=self.block_size, expected="blocks of whole bytes")

    def infer(
        self,
        input: TensorSpec,
        weight: TensorSpec,
        scales: TensorSpec,
        zero_points: TensorSpec | None = None,
        bias: TensorSpec | None = None,
    ) -> TensorSpec:
        if dtype_category(input.dtype) is not Category.FLOATING:
            raise ShapeError("input is not a float tensor", found=dtype_name(input.dtype), expected="floats")
        if weight.dtype != _BYTE:
            raise ShapeError("weight is not packed", found=dtype_name(weight.dtype), expected="uint8")
        shape = self._shape(input.shape, weight.shape)
        for name, each in (("scales", scales), ("zero_points", zero_points)):
            if each is not None:
                check_shape(each.shape, weight.shape[:2], f"{name} does not fit the weight")
        if bias is not None:
            check_shape(bias.shape, weight.shape[:1], "bias does not fit the weight")
        return TensorSpec(shape, input.dtype)

    def forward(
        self,
        input: Array,
        weight: Array,
        scales: Array,
        zero_points: Array | None = None,
        bias: Array | None = None,
    ) -> Array:
        working = working_dtype(input.dtype)
        with np.errstate(all="ignore"):
            wide = self.dequantised(weight, scales, zero_points, working)[:, : input.shape[-1]]
            shift = None if bias is None else cast(bias, working)
            return cast(apply_linear(cast(input, working), wide, shift), input.dtype)

    def dequantised(self, weight: Array, scales: Array, zero_points: Array | None, dtype: DType) -> Array:
        """Return the weights as floats (O, B * block_size)."""
        codes = codes_of(weight, self.bits).astype(dtype)
        zeros = (1 << (self.bits - 1)) if zero_points is None else cast(zero_points, dtype)[..., None]
        return np.asarray((codes - zeros) * cast(scales, dtype)[..., None], dtype).reshape(len(weight), -1)

    def flops(self, output: TensorSpec, *operands: object) -> int:
        inner = operands[0].shape[-1] if isinstance(operands[0], TensorSpec) and operands[0].shape else None
        return 2 * (output.size or 0) * (inner or 0)

    def _shape(self, input: Shape, weight: Shape) -> Shape:
        fits = len(weight) == 3 and len(input) > 0
        if fits and input[-1] is not None:
            fits = may_equal(weight[1], -(-input[-1] // self.block_size))
        if not fits or not may_equal(weight[2], self.block_size * self.bits // 8):
            raise ShapeError(
                "input does not fit the weight",
                found=f"{format_shape(input)} by {format_shape(weight)}",
                expected=f"[..., I] by [O, ceil(I / {self.block_size}), {self.block_size * self.bits // 8}]",
            )
        return (*input[:-1], weight[0])


def codes_of(packed: Array, bits: int) -> Array:
    """Return the codes of a few bits in bytes, along the last axis, lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return np.asarray((packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)).reshape(*packed.shape[:-1], -1)


def packed_codes(codes: Array, bits: int) -> Array:
    """Return codes as bytes; the reverse of ``codes_of``."""
    number = 8 // bits
    parts = codes.astype(np.uint8).reshape(*codes.shape[:-1], -1, number) << np.arange(0, 8, bits, dtype=np.uint8)
    return np.asarray(np.bitwise_or.reduce(parts, -1), np.uint8)
