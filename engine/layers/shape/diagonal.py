"""Operators on diagonals; a positive offset is to the right of the main diagonal, a negative one below it."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.errors import ShapeError
from engine.ir.dims import largest, smallest
from engine.layers.definition.composite import CallLayer, Composite
from engine.layers.definition.registry import register
from engine.layers.operands.axes import checked_axes, sizes
from engine.layers.operands.fitting import check_shape
from engine.layers.operands.views import diagonal
from engine.layers.reduction.reduction import Sum
from engine.layers.shape.shape import Flatten, Rearrangement
from engine.promotion import cast
from engine.tensor import Array, Dim, Number, Shape, TensorSpec, format_shape


@register("torch.diagonal", positional=("input", "offset", "dim1", "dim2"))
class Diagonal(Rearrangement):
    """A diagonal of each plane (dim1, dim2), as the last axis."""

    offset: int = 0
    dim1: int = 0
    dim2: int = 1

    def infer(self, input: TensorSpec) -> TensorSpec:
        axes = self._plane(input.rank)
        rest = tuple(dim for axis, dim in enumerate(input.shape) if axis not in axes)
        return TensorSpec((*rest, _length(input.shape[axes[0]], input.shape[axes[1]], self.offset)), input.dtype)

    def forward(self, input: Array) -> Array:
        return diagonal(input, self.offset, *self._plane(input.ndim))

    def _plane(self, rank: int) -> tuple[int, int]:
        if rank < 2:
            raise ShapeError("a matrix is needed", found=f"{rank} dimensions", expected="at least 2")
        first, second = checked_axes((self.dim1, self.dim2), rank)
        return first, second


def _length(rows: Dim, columns: Dim, offset: int) -> Dim:
    if rows is None or columns is None:
        return None
    return largest(smallest(rows, columns - offset) if offset >= 0 else smallest(rows + offset, columns), 0)


@register("aten::diagonal_scatter", positional=("input", "src", "offset", "dim1", "dim2"))
class DiagonalScatter(Rearrangement):
    """A copy of input with src on a diagonal of each plane."""

    offset: int = 0
    dim1: int = 0
    dim2: int = 1

    def infer(self, input: TensorSpec, src: TensorSpec) -> TensorSpec:
        check_shape(src.shape, self._diagonal.infer(input).shape)
        return input

    def forward(self, input: Array, src: Array) -> Array:
        result = input.copy()
        view = self._diagonal.forward(result)
        view.flags.writeable = True  # numpy's diagonals are read-only; this one is of our own copy
        view[...] = cast(src, input.dtype)
        return result

    @property
    def _diagonal(self) -> Diagonal:
        return Diagonal(offset=self.offset, dim1=self.dim1, dim2=self.dim2)


@register("aten::diag_embed", positional=("input", "offset", "dim1", "dim2"))
class DiagonalEmbed(Rearrangement):
    """The last axis as a diagonal of otherwise zero matrices on axes dim1 and dim2 of the result."""

    offset: int = 0
    dim1: int = -2
    dim2: int = -1

    def infer(self, input: TensorSpec) -> TensorSpec:
        return TensorSpec(self._shape(input.shape), input.dtype)

    def forward(self, input: Array) -> Array:
        result = np.zeros(sizes(self._shape(input.shape)), input.dtype)
        view = Diagonal(offset=self.offset, dim1=self.dim1, dim2=self.dim2).forward(result)
        view.flags.writeable = True  # numpy's diagonals are read-only
        view[...] = input
        return result

    def _shape(self, shape: Shape) -> Shape:
        if not shape:
            raise ShapeError("a 0-dim tensor has no diagonal")
        plane = checked_axes((self.dim1, self.dim2), len(shape) + 1)
        side = None if shape[-1] is None else shape[-1] + abs(self.offset)
        rest = iter(shape[:-1])
        return tuple(side if axis in plane else next(rest) for axis in range(len(shape) + 1))


@register("torch.diag")
class Diag(Composite):
    """The matrix with a vector on its diagonal, or the diagonal of a matrix."""

    diagonal: int = 0

    def compose(self, call: CallLayer, input: Array) -> Any:
        rank = len(input.shape)
        if rank not in (1, 2):
            raise ShapeError("only vectors and matrices have a diagonal", found=f"{rank} dimensions", expected="1 or 2")
        return call(DiagonalEmbed(offset=self.diagonal) if rank == 1 else Diagonal(offset=self.diagonal), input)


@register("aten::diagflat")
class DiagFlat(Composite):
    """The matrix with all elements on its diagonal."""

    offset: int = 0

    def compose(self, call: CallLayer, input: Array) -> Any:
        return call(DiagonalEmbed(offset=self.offset), call(Flatten(), input))


@register("torch.trace")
class Trace(Composite):
    """The sum of a matrix' diagonal; integers and bools give int64."""

    def compose(self, call: CallLayer, input: Array) -> Any:
        if len(input.shape) != 2:
            raise ShapeError("a matrix is needed", found=format_shape(input.shape), expected="2 dimensions")
        return call(Sum(), call(Diagonal(), input))


@register("aten::fill_diagonal")
class FillDiagonal(Rearrangement):
    """input with one value on its main diagonal; in tall matrices repeated after each square if wrap."""

    wrap: bool = False

    def infer(self, input: TensorSpec, fill_value: Number) -> TensorSpec:
        if input.rank < 2:
            raise ShapeError("a matrix is needed", found=format_shape(input.shape), expected="at least 2 dimensions")
        known = [size for size in input.shape if size is not None]
        if input.rank > 2 and any(size != known[0] for size in known):
            raise ShapeError("all dimensions must be equal", found=format_shape(input.shape))
        return input

    def forward(self, input: Array, fill_value: Number) -> Array:
        result = input.copy()
        np.fill_diagonal(result, cast(fill_value, input.dtype), self.wrap)
        return result
