"""Identity matrices, indices of triangles, grids, and one-hot rows."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.creation.creation import FLOAT32
from engine.layers.definition.layer import Layer
from engine.layers.definition.overload import overload
from engine.layers.definition.registry import register
from engine.layers.indexing.masking import lower_triangle
from engine.layers.operands.precision import INT64
from engine.layers.shape.shape import Rearrangement
from engine.limits import check_scratch, check_size
from engine.promotion import cast
from engine.tensor import UNKNOWN, Array, Dim, DType, TensorSpec, dtype_name, format_shape


class Eye(Layer):
    """1 on the main diagonal of a matrix of n rows and m columns, else 0; m is n unless given."""

    n: tuple[Dim, ...]
    m: tuple[Dim, ...] = ()
    dtype: DType | None = None

    def infer(self) -> TensorSpec:
        return TensorSpec((*self.n, *(self.m or self.n)), self.dtype or FLOAT32)

    def forward(self) -> Array:
        rows, columns = (int(each or 0) for each in (*self.n, *(self.m or self.n)))
        if rows < 0 or columns < 0:
            raise ParameterError("size must not be negative", found=f"{rows} and {columns}")
        return np.eye(rows, columns, dtype=self.dtype or FLOAT32)


overload("aten::eye", (Eye, "n dtype layout device pin_memory"), (Eye, "n m dtype layout device pin_memory"))


class TriangleIndices(Layer):
    """The row and column numbers of a matrix' lower, or upper, triangle, row by row."""

    is_upper: bool
    row: int
    col: int
    offset: int = 0
    dtype: DType | None = None

    def __post_init__(self) -> None:
        check_scratch((self.row, self.col), np.dtype(np.bool_), 0, "the matrix")

    def infer(self) -> TensorSpec:
        return TensorSpec((2, len(self._rows_and_columns()[0])), self.dtype or INT64)

    def forward(self) -> Array:
        return cast(np.stack(self._rows_and_columns()), self.dtype or INT64)

    def _rows_and_columns(self) -> tuple[Array, ...]:
        return np.nonzero(lower_triangle(self.row, self.col, self.offset - self.is_upper) != self.is_upper)


for _type, _is_upper in (("aten::tril_indices", False), ("aten::triu_indices", True)):
    overload(_type, (partial(TriangleIndices, is_upper=_is_upper), "row col offset dtype layout device pin_memory"))


@register("aten::meshgrid")
class MeshGrid(Rearrangement):
    """Vectors as a grid: one tensor a vector, which varies along its own axis; xy swaps the first two axes."""

    indexing: Literal["ij", "xy"] | None = "ij"

    def infer(self, tensors: Any) -> Any:
        if not all(isinstance(tensor, TensorSpec) for tensor in tensors):
            return UNKNOWN
        shape = tuple(tensor.size for tensor in tensors)
        _check_vectors(tensors)
        swapped = (shape[1], shape[0], *shape[2:]) if self.indexing == "xy" and len(shape) > 1 else shape
        return [TensorSpec(swapped, tensor.dtype) for tensor in tensors]

    def forward(self, tensors: list[Array]) -> list[Array]:
        axes = [*range(len(tensors))]
        if self.indexing == "xy":
            axes[:2] = axes[1::-1]
        shape = [tensors[axis].size for axis in axes]
        return [
            np.broadcast_to(tensor.reshape([-1 if k == axis else 1 for k in range(len(axes))]), shape)
            for tensor, axis in zip(tensors, axes, strict=True)
        ]


def _check_vectors(tensors: list[TensorSpec]) -> None:
    for tensor in tensors:
        if tensor.rank > 1:
            raise ShapeError("a grid is made of vectors", found=format_shape(tensor.shape), expected="[n]")


@register("F.one_hot")
class OneHot(Layer):
    """1 at the class index along a new last axis, else 0; the number of classes is inferred if num_classes is -1."""

    num_classes: int = -1

    def __post_init__(self) -> None:
        if self.num_classes < -1:
            raise ParameterError("num_classes must not be negative, or -1", found=self.num_classes)

    def infer(self, input: TensorSpec) -> TensorSpec:
        if input.dtype.kind not in "iu":
            raise ShapeError("class indices must be integers", found=dtype_name(input.dtype))
        return TensorSpec((*input.shape, None if self.num_classes < 0 else self.num_classes), INT64)

    def forward(self, input: Array) -> Array:
        if not input.size and self.num_classes < 0:
            raise ShapeError("the number of classes is unknown", found=format_shape(input.shape))
        input = cast(input, INT64)
        largest = int(input.max(initial=-1))
        count = largest + 1 if self.num_classes < 0 else self.num_classes
        if input.size and (input.min() < 0 or largest >= count):
            raise ShapeError("class out of range", found=f"{input.min()} to {largest}", expected=f"0 to {count - 1}")
        check_size((*input.shape, count), INT64)
        return np.asarray(input[..., None] == np.arange(count), INT64)
