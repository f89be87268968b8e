"""Convolutions of 8-bit integers, which PyTorch has only with its own quantised tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from engine.errors import ShapeError
from engine.layers.convolution.conv import Conv
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.onnx.operands.adapter import as_tensor, shape_of
from engine.layers.onnx.operands.padding import Pair, check_auto_pad, pairs_of, per_axis
from engine.promotion import broadcast_shapes, cast
from engine.tensor import Array, DType, Number, TensorSpec, format_shape

_INT32: DType = np.dtype(np.int32)
_FLOAT32: DType = np.dtype(np.float32)
_PADDINGS: Final = {"VALID": "valid", "SAME_UPPER": "same", "SAME_LOWER": "same_lower"}


class Windowed(Layer):
    """Base of convolutions.

    Parameters:
        auto_pad: NOTSET (pads counts), VALID (none), SAME_UPPER or SAME_LOWER (ceil(size / stride) windows).
        pads: all starts, then all ends.
    """

    auto_pad: str = "NOTSET"
    dilations: tuple[int, ...] = ()
    group: int = 1
    kernel_shape: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_auto_pad(self.auto_pad)

    def rank(self, weight: object) -> int:
        """Number of spatial axes."""
        rank = len(shape_of(weight)) - 2
        if rank < 1 or (self.kernel_shape and len(self.kernel_shape) != rank):
            expected = "as many axes as kernel_shape, and two more" if self.kernel_shape else "3 axes or more"
            raise ShapeError("weight does not fit", found=format_shape(shape_of(weight)), expected=expected)
        return rank

    def common(self, rank: int) -> dict[str, Any]:
        """Return the parameters that all convolutions share."""
        return {
            "spatial_rank": rank,
            "stride": per_axis(self.strides, rank, "strides"),
            "dilation": per_axis(self.dilations, rank, "dilations"),
            "groups": self.group,
            "kernel_size": self.kernel_shape,
        }


def convolution(node: Windowed, rank: int) -> Layer:
    """Return the equivalent convolution."""
    padding: str | tuple[int, ...] | None = _PADDINGS.get(node.auto_pad)
    if padding is None:
        befores, afters = zip(*pairs_of(node.pads, rank), strict=True)
        padding = (*befores, *afters)
    return Conv(**node.common(rank), padding=padding).canonicalise()


def windows_and_pads(node: Windowed, rank: int) -> tuple[Conv, Sequence[Pair]]:
    """Return a convolution without its padding, and the padding before and after each axis.

    Raises:
        ShapeError: the padding depends on sizes.
    """
    if node.auto_pad not in ("NOTSET", "VALID"):
        raise ShapeError("padding depends on sizes", found=node.auto_pad, expected="NOTSET or VALID")
    return Conv(**node.common(rank)), pairs_of(node.pads if node.auto_pad == "NOTSET" else (), rank)


@register("ConvInteger", positional=("input", "weight", "x_zero_point", "w_zero_point", "bias"))
class ConvInteger(Windowed):
    """Convolution of 8-bit integers with their zero points subtracted, in int32 or the nearest float32.

    The core multiplies bytes only as PyTorch's quantised tensors, with one scale.

    Shapes:
        input (N, C, *S), weight (O, C/group, *K), zero points () and () or (O,), bias (O,)  ->  (N, O, *T)
    """

    as_float: bool = False

    def infer(self, input: TensorSpec, weight: TensorSpec, *others: object) -> TensorSpec:
        spec = convolution(self, self.rank(weight)).infer(input, TensorSpec(weight.shape, input.dtype))
        return TensorSpec(spec.shape, _FLOAT32 if self.as_float else _INT32)

    def forward(
        self,
        input: Array,
        weight: Array,
        x_zero_point: Array | Number | None = 0,
        w_zero_point: Array | Number | None = 0,
        bias: Array | None = None,
    ) -> Array:
        x = distances(input, x_zero_point, "x_zero_point")
        w = distances(weight, w_zero_point, "w_zero_point", 0)
        # float64 represents all sums exactly, and its products are faster than those of int64.
        exact = convolution(self, self.rank(weight)).forward(x.astype(np.float64), w.astype(np.float64))
        if bias is not None:
            exact = exact + bias.astype(np.float64).reshape(-1, *(1,) * self.rank(weight))
        sums = cast(exact.astype(np.int64), _INT32)
        return cast(sums, _FLOAT32) if self.as_float else sums

    def flops(self, output: TensorSpec, *operands: object) -> int:
        return convolution(self, self.rank(operands[1])).flops(output, *operands[:2])


def distances(values: Array, zero_point: Array | Number | None, name: str, axis: int | None = None) -> Array:
    """Return values - zero_point in int64; a vector of zero points belongs to an axis."""
    zero = cast(as_tensor(zero_point, np.dtype(np.int64), name), np.dtype(np.int64))
    if zero.size == 1:
        zero = zero.reshape(())
    elif axis is not None and zero.ndim == 1:
        zero = zero.reshape(-1, *(1,) * (values.ndim - 1 - axis))
    if broadcast_shapes(zero.shape, values.shape) != values.shape:
        raise ShapeError(f"{name} does not fit", found=format_shape(zero.shape), expected=format_shape(values.shape))
    return np.asarray(values.astype(np.int64) - zero)
