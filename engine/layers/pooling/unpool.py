"""The inverse of maximum pooling: every value is written back to its position."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from engine.errors import ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.operands.fitting import check_shape
from engine.layers.operands.spatial import REAL, Operand, image, spread, tensor
from engine.layers.pooling.max_pool import INDEX
from engine.tensor import Array, Dim, TensorSpec, dtype_name


@register("nn.MaxUnpool2d", presets={"spatial_rank": 2})
class MaxUnpool(Layer):
    """Zeros, with each value at its index.

    Shapes:
        input and indices (N, C, *S) or (C, *S)  ->  (N, C, *T) or (C, *T)
        T = (S - 1)*stride - 2*padding + kernel_size
    Dtypes:
        floating or integer; indices int64, into the flattened spatial axes of the result.
    Raises:
        ShapeError: when the indices are not of the input's shape, or out of range.
    Source:
        torch.nn.MaxUnpool2d.
    """

    spatial_rank: int
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...] = ()
    padding: tuple[int, ...] = (0,)

    def infer(self, input: Operand, indices: Operand) -> TensorSpec:
        spec, places = image(input, self.spatial_rank, REAL), tensor(indices, "indices")
        if places.dtype != INDEX:
            raise ShapeError("indices have the wrong dtype", found=dtype_name(places.dtype), expected="int64")
        check_shape(places.shape, spec.shape, "indices do not fit")
        rank = self.spatial_rank
        kernel = spread(self.kernel_size, rank, "kernel_size")
        strides = spread(self.stride or kernel, rank, "stride")
        padding = spread(self.padding, rank, "padding", 0)
        rows = zip(spec.shape[-rank:], kernel, strides, padding, strict=True)
        return TensorSpec((*spec.shape[:-rank], *(_unpooled_size(*row) for row in rows)), spec.dtype)

    def forward(self, input: Array, indices: Array) -> Array:
        shape: Any = self.infer(input, indices).shape
        lead, sizes = shape[: -self.spatial_rank], shape[-self.spatial_rank :]
        places = indices.reshape(*lead, math.prod(indices.shape[-self.spatial_rank :]))
        if places.size and not 0 <= places.min() <= places.max() < math.prod(sizes):
            found = f"{places.min()} to {places.max()}"
            raise ShapeError("an index is out of range", found=found, expected=f"0 to {math.prod(sizes) - 1}")
        result = np.zeros((*lead, math.prod(sizes)), input.dtype)
        np.put_along_axis(result, places, input.reshape(places.shape), axis=-1)
        return result.reshape(shape)


def _unpooled_size(size: Dim, kernel: int, stride: int, padding: int) -> Dim:
    if size is None:
        return None
    result = (size - 1) * stride - 2 * padding + kernel
    if result < 1:
        raise ShapeError("the output would be empty", found=f"size {size} becomes {result}")
    return result
