"""Convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.convolution.conv import Conv, SelfPaddedConv
from engine.layers.convolution.conv_transpose import ConvTranspose
from engine.layers.convolution.pad import extend, padded_shape
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.onnx.operands.adapter import Adapter, as_tensor, check_fits, shape_of
from engine.layers.onnx.operands.padding import Pair, check_auto_pad, pairs_of, per_axis, same_pairs
from engine.layers.operands.spatial import Operand, spread
from engine.promotion import broadcast_shapes, cast
from engine.tensor import Array, DType, Number, Shape, TensorSpec, format_shape

_INT32: DType = np.dtype(np.int32)
_FLOAT32: DType = np.dtype(np.float32)


class Windowed(Adapter):
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


class PaddedConv(SelfPaddedConv):
    """Convolution with asymmetric padding."""

    auto_pad: str = "NOTSET"
    pads: tuple[int, ...] = ()

    def _pairs(self, input: Operand, weight: Operand) -> Any:
        rank, sizes, kernel = self.conv.spatial_rank, input.shape[2:], weight.shape[2:]
        check_fits(len(sizes) == len(kernel) == rank, "input", input.shape, f"{rank + 2} axes")
        if self.auto_pad == "NOTSET":
            return pairs_of(self.pads, rank)
        if None in sizes or None in kernel:
            return [(None, None)] * rank
        extents = [axis.extent for axis in self.conv.windows_of(tuple(size or 0 for size in kernel))]
        return same_pairs(sizes, extents, self.conv.stride, self.auto_pad == "SAME_UPPER")


@register("Conv")
class OnnxConv(Windowed):
    """Cross-correlation of images with filters.

    Shapes:
        input (N, C, *S), weight (O, C/group, *K), bias (O,)  ->  (N, O, *T)
    """

    canonical_layers = (Conv,)

    def canonical(self, input: Operand, weight: Operand, bias: Operand | None = None) -> Layer:
        return convolution(self, self.rank(weight))

    def forward(self, input: Array, weight: Array, bias: Array | None = None) -> Any:
        return self.run(input, weight, bias)


def convolution(node: Windowed, rank: int) -> Layer:
    """Return the equivalent convolution; PyTorch's if the padding is symmetric."""
    conv = Conv(**node.common(rank))
    if node.auto_pad == "VALID":
        return conv
    if node.auto_pad == "SAME_UPPER" and set(conv.stride) == {1}:
        return replace(conv, padding="same")
    if node.auto_pad == "NOTSET":
        pairs = pairs_of(node.pads, rank)
        if all(before == after for before, after in pairs):
            return replace(conv, padding=tuple(before for before, _ in pairs))
    return PaddedConv(conv=conv, auto_pad=node.auto_pad, pads=node.pads)


def windows_and_pads(node: Windowed, rank: int) -> tuple[Conv, Sequence[Pair]]:
    """Return a convolution without its padding, and the padding before and after each axis.

    Raises:
        ShapeError: the padding depends on sizes.
    """
    if node.auto_pad not in ("NOTSET", "VALID"):
        raise ShapeError("padding depends on sizes", found=node.auto_pad, expected="NOTSET or VALID")
    return Conv(**node.common(rank)), pairs_of(node.pads if node.auto_pad == "NOTSET" else (), rank)


@register("ConvTranspose")
class OnnxConvTranspose(Windowed):
    """Transposed convolution.

    Shapes:
        input (N, C, *S), weight (C, O/group, *K), bias (O,)  ->  (N, O, *T)
    Parameters:
        output_shape: the sizes T, or all sizes; pads follow from it.
        output_padding: elements added at the ends.
    """

    canonical_layers = (ConvTranspose,)

    output_padding: tuple[int, ...] = ()
    output_shape: tuple[int, ...] = ()

    def canonical(self, input: Operand, weight: Operand, bias: Operand | None = None) -> Layer:
        rank = self.rank(weight)
        common = self.common(rank)
        extra = spread(self.output_padding or (0,), rank, "output_padding", 0)
        pairs = pairs_of(self.pads, rank) if self.auto_pad == "NOTSET" else [(0, 0)] * rank
        is_plain = not self.output_shape and self.auto_pad in ("NOTSET", "VALID")
        limits = zip(extra, common["stride"], common["dilation"], strict=True)
        if (
            is_plain
            and all(before == after for before, after in pairs)
            and all(more < max(stride, dilation) for more, stride, dilation in limits)
        ):
            return ConvTranspose(**common, padding=tuple(before for before, _ in pairs), output_padding=extra)
        return CroppedConvTranspose(
            conv=ConvTranspose(**common), auto_pad=self.auto_pad, pads=self.pads, extra=extra, sizes=self.output_shape
        )

    def forward(self, input: Array, weight: Array, bias: Array | None = None) -> Any:
        return self.run(input, weight, bias)


class CroppedConvTranspose(Layer):
    """Transposed convolution cropped, or padded with its bias, to the required size."""

    conv: ConvTranspose
    auto_pad: str
    pads: tuple[int, ...]
    extra: tuple[int, ...]
    sizes: tuple[int, ...]

    def infer(self, input: Operand, weight: Operand, bias: Operand | None = None) -> TensorSpec:
        whole = self.conv.infer(input, weight, bias)
        rank = self.conv.spatial_rank
        if None in whole.shape[-rank:] or None in input.shape[-rank:]:
            return TensorSpec((*whole.shape[:-rank], *(None,) * rank), whole.dtype)
        return TensorSpec(padded_shape(whole.shape, self._crops(input.shape, whole.shape)), whole.dtype)

    def forward(self, input: Array, weight: Array, bias: Array | None = None) -> Array:
        self.infer(input, weight, bias)
        whole = self.conv.forward(input, weight)
        y = extend(whole, self._crops(input.shape, whole.shape))
        if bias is None:
            return y
        return cast(y + cast(bias, y.dtype).reshape(-1, *(1,) * self.conv.spatial_rank), whole.dtype)

    def flops(self, output: TensorSpec, *operands: object) -> int:
        return self.conv.flops(output, *operands)

    def _crops(self, input: Shape, whole: Shape) -> list[Pair]:
        """Return the padding (negative: cropping) before and after each axis of the full result."""
        rank = self.conv.spatial_rank
        sizes, full = [size or 0 for size in input[-rank:]], [size or 0 for size in whole[-rank:]]
        if self.auto_pad == "NOTSET" and not self.sizes:
            rows = zip(pairs_of(self.pads, rank), self.extra, strict=True)
            return [(-before, more - after) for (before, after), more in rows]
        strides = spread(self.conv.stride, rank, "stride")
        wanted = [size * stride for size, stride in zip(sizes, strides, strict=True)]
        if self.sizes:
            if len(self.sizes) < rank:
                raise ParameterError("output_shape does not fit", found=list(self.sizes), expected=f"{rank} sizes")
            wanted = list(self.sizes[-rank:])
        elif self.auto_pad == "VALID":
            wanted = [size + more for size, more in zip(full, self.extra, strict=True)]
        crops = []
        for want, size, more in zip(wanted, full, self.extra, strict=True):
            total = size + more - want
            less, rest = total // 2, total - total // 2
            # SAME_UPPER puts the odd element at the end; every other mode at the start.
            before, after = (less, rest) if self.auto_pad == "SAME_UPPER" else (rest, less)
            before = max(before, 0)
            crops.append((-before, want - size + before))
        return crops


@register("ConvInteger", positional=("input", "weight", "x_zero_point", "w_zero_point", "bias"))
class ConvInteger(Windowed):
    """Convolution of 8-bit integers with their zero points subtracted, in int32 or the nearest float32.

    Shapes:
        input (N, C, *S), weight (O, C/group, *K), zero points () and () or (O,), bias (O,)  ->  (N, O, *T)
    """

    canonicalises = False

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
        self.infer(TensorSpec(input.shape, input.dtype), TensorSpec(weight.shape, weight.dtype))
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
