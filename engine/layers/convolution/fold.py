"""Images as columns of patches, and back."""

from __future__ import annotations

import math

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.convolution.window import (
    Window,
    check_padded,
    check_taps,
    columns,
    counts,
    overlap_add,
    pad,
    sliding_windows,
)
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.operands.precision import working_dtype
from engine.layers.operands.spatial import Operand, check_rank, image, spread, tensor
from engine.promotion import cast
from engine.tensor import Array, Dim, TensorSpec, format_shape, product


class _Patches(Layer):
    """Base of layers that map patches to an image."""

    loops = True

    kernel_size: tuple[int, ...]
    dilation: tuple[int, ...] = (1,)
    padding: tuple[int, ...] = (0,)
    stride: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        check_taps(self.windows)

    @property
    def windows(self) -> tuple[Window, ...]:
        """The window on each axis of the image."""
        kernel = spread(self.kernel_size, self.spatial_rank, "kernel_size")
        return tuple(sliding_windows(kernel, stride=self.stride, padding=self.padding, dilation=self.dilation))

    @property
    def spatial_rank(self) -> int:
        """Number of axes of the image."""
        return 2

    @property
    def taps(self) -> int:
        """Number of elements of a patch in one channel."""
        return math.prod(window.kernel for window in self.windows)


@register("F.unfold")
class Unfold(_Patches):
    """Every patch of an image as a column, its channels one after the other.

    Shapes:
        input (N, C, H, W) or (C, H, W)  ->  (N, C*KH*KW, L) or (C*KH*KW, L), L patches row by row
    Dtypes:
        any.
    Raises:
        ShapeError: when the image is smaller than a patch.
    Source:
        torch.nn.Unfold.
    """

    def infer(self, input: Operand) -> TensorSpec:
        spec = image(input, 2)
        *lead, c, h, w = spec.shape
        result = TensorSpec((*lead, product((c, self.taps)), product(counts(self.windows, (h, w)))), spec.dtype)
        check_padded(spec, self.windows, result)
        return result

    def forward(self, input: Array) -> Array:
        patches = columns(pad(input, self.windows), self.windows)
        *lead, c, kh, kw, h, w = patches.shape
        return patches.reshape(*lead, c * kh * kw, h * w)


@register("F.fold")
class Fold(_Patches):
    """Every column laid down as a patch; where patches overlap they add up.

    Shapes:
        input (N, C*KH*KW, L) or (C*KH*KW, L)  ->  (N, C, *output_size) or (C, *output_size)
    Parameters:
        any_rank: accept patches and images of more axes (ONNX).
    Dtypes:
        any.
    Raises:
        ShapeError: when the input has another number of patches than lie on the output, or its rows do not divide
            into patches.
    Source:
        torch.nn.Fold.
    """

    output_size: tuple[Dim, ...]
    any_rank: bool = False

    def __post_init__(self) -> None:
        if len(self.output_size) not in (1, 2) and not (self.any_rank and self.output_size):
            raise ParameterError("output_size does not fit", found=list(self.output_size), expected="height and width")
        super().__post_init__()

    @property
    def spatial_rank(self) -> int:
        return max(len(self.output_size), 2)

    def infer(self, input: Operand) -> TensorSpec:
        spec = tensor(input)
        check_rank(spec, 2, 3)
        sizes = self.output_size * 2 if len(self.output_size) == 1 else self.output_size
        *lead, rows, patches = spec.shape
        if rows is not None and rows % self.taps:
            raise ShapeError("rows are not divisible into patches", found=rows, expected=f"a multiple of {self.taps}")
        expected = product(counts(self.windows, sizes))
        if None not in (patches, expected) and patches != expected:
            raise ShapeError("wrong number of patches", found=format_shape(spec.shape), expected=f"{expected} patches")
        result = TensorSpec((*lead, None if rows is None else rows // self.taps, *sizes), spec.dtype)
        check_padded(result, self.windows, spec)
        return result

    def forward(self, input: Array) -> Array:
        shape = self.infer(input).shape
        sizes = [size or 0 for size in shape[-self.spatial_rank :]]
        kernel = [window.kernel for window in self.windows]
        places = [window.count(size) or 0 for window, size in zip(self.windows, sizes, strict=True)]
        *lead, rows, _ = input.shape
        values = cast(input, working_dtype(input.dtype)).reshape(*lead, rows // self.taps, *kernel, *places)
        with np.errstate(all="ignore"):
            return cast(overlap_add(values, self.windows, sizes), input.dtype)
