"""Inverse of maximum pooling."""

from __future__ import annotations

import math

import numpy as np

from engine.errors import ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.onnx.operands.adapter import check_fits
from engine.layers.onnx.operands.padding import Pair, pairs_of, per_axis
from engine.limits import check_size
from engine.tensor import Array, Dim, Shape, TensorSpec, format_shape


@register("MaxUnpool", positional=("input", "indices", "output_shape"))
class OnnxMaxUnpool(Layer):
    """Zeros, with each value at its index in the flattened result.

    Shapes:
        input and indices (N, C, *S)  ->  (N, C, *T), T = (S - 1)*stride - pads + kernel, or output_shape
    """

    kernel_shape: tuple[int, ...]
    pads: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    output_shape: tuple[int, ...] | None = None

    def infer(self, input: TensorSpec, indices: TensorSpec) -> TensorSpec:
        shape = self.natural(input.shape)
        check_fits(len(indices.shape) == input.rank, "indices", indices.shape, format_shape(input.shape))
        if self.output_shape is not None:
            wanted = self.output_shape
            check_fits(len(wanted) == input.rank and min(wanted) >= 0, "output_shape", wanted, format_shape(shape))
            return TensorSpec(wanted, input.dtype)
        return TensorSpec(shape, input.dtype)

    def forward(self, input: Array, indices: Array) -> Array:
        spec = self.infer(TensorSpec(input.shape, input.dtype), TensorSpec(indices.shape, indices.dtype))
        check_fits(indices.shape == input.shape, "indices", indices.shape, format_shape(input.shape))
        if indices.dtype.kind not in "iu":
            raise ShapeError("an index must be of integers", found=indices.dtype)
        natural = [size or 0 for size in self.natural(input.shape)]
        check_size(natural, input.dtype, "the unpooled tensor")
        if indices.size and not 0 <= indices.min() <= indices.max() < math.prod(natural):
            found = f"{indices.min()} to {indices.max()}"
            raise ShapeError("an index is out of range", found=found, expected=f"0 to {math.prod(natural) - 1}")
        shape = spec.sizes
        coordinates = np.unravel_index(indices, natural)
        if any(place.size and place.max() >= size for place, size in zip(coordinates, shape, strict=True)):
            raise ShapeError("an index is out of range", found=format_shape(shape), expected=format_shape(natural))
        result = np.zeros(shape, input.dtype)
        result[coordinates] = input
        return result

    def natural(self, shape: Shape) -> Shape:
        """Return the shape of the result without ``output_shape``."""
        rank = len(self.kernel_shape)
        check_fits(len(shape) == rank + 2, "input", shape, f"{rank + 2} axes")
        strides = per_axis(self.strides, rank, "strides")
        rows = zip(shape[2:], self.kernel_shape, strides, pairs_of(self.pads, rank), strict=True)
        return (*shape[:2], *(_unpooled(*row) for row in rows))


def _unpooled(size: Dim, kernel: int, stride: int, pair: Pair) -> Dim:
    if size is None:
        return None
    result = (size - 1) * stride - sum(pair) + kernel
    if result < 1:
        raise ShapeError("the output would be empty", found=f"size {size} becomes {result}")
    return result
