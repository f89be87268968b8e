"""Operators that select elements by position or by a mask."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.errors import ShapeError
from engine.layers.definition.registry import register
from engine.layers.operands.axes import checked_axis, replaced, sizes
from engine.layers.operands.fitting import check_mask
from engine.layers.operands.precision import INT64
from engine.layers.shape.shape import Rearrangement
from engine.promotion import broadcast_shapes
from engine.tensor import Array, Dim, Shape, TensorSpec, format_shape


def check_positions(index: Array, length: int, lowest: int = 0) -> None:
    """Refuse positions out of range.

    Raises:
        ShapeError: naming the first such position, or the dtype if it is not an integer.
    """
    if index.dtype.kind not in "iu":
        raise ShapeError("an index must be of integers", found=index.dtype)
    if index.size and (index.min() < lowest or index.max() >= length):
        outside = index[(index < lowest) | (index >= length)]
        raise ShapeError("index is out of range", found=int(outside[0]), expected=f"{lowest} to {length - 1}")


def counted(index: Array, length: int, counts_back: bool = True) -> Array:
    """Return positions counted from 0.

    Args:
        counts_back: accept negative positions, which count from the end.

    Raises:
        ShapeError: a position is out of range.
    """
    check_positions(index, length, -length if counts_back else 0)
    return np.where(index < 0, index + length, index) if index.size and index.min() < 0 else index


def check_covers(index: Shape, other: Shape, axis: int | None) -> None:
    """Refuse an index tensor that is larger than the indexed tensor in a dimension other than axis."""
    if len(index) != len(other) or any(
        i != axis and None not in (m, n) and (m or 0) > (n or 0)
        for i, (m, n) in enumerate(zip(index, other, strict=True))
    ):
        raise ShapeError("index does not fit", found=format_shape(index), expected=f"within {format_shape(other)}")


def at_least_1d(shape: Shape) -> Shape:
    """Return a shape, (1,) for a 0-dim tensor."""
    return shape or (1,)


def flat_places(shape: Sequence[int], places: Sequence[Array]) -> Array:
    """Return flat indices of elements of a contiguous array, which numpy reads several times as fast.

    Args:
        places: an index for each axis, which broadcast against each other; not negative.
    """
    steps = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    flat = (place.astype(np.int64, copy=False) * step for place, step in zip(places, steps, strict=True))
    return np.asarray(sum(sorted(flat, key=np.size)))  # the small ones are added first


def open_grid(index: Array, axis: int) -> list[Array]:
    """Return an index for each axis: ``index`` on one of them, the element's own position on the others."""
    grid = list(np.ogrid[tuple(slice(n) for n in index.shape)])
    grid[axis] = index
    return grid


@register("torch.gather", ignored=("sparse_grad",), positional=("input", "dim", "index", "sparse_grad"))
class Gather(Rearrangement):
    """out[i][j][k] = input[i][index[i][j][k]][k] for dim 1; index decides the shape of the result.

    Parameters:
        counts_back: accept negative indices, which count from the end (ONNX).
    """

    dim: int
    sparse_grad: bool = False
    counts_back: bool = False

    def infer(self, input: TensorSpec, index: TensorSpec) -> TensorSpec:
        axis = checked_axis(self.dim, input.rank)
        if 0 not in index.shape:
            check_covers(at_least_1d(index.shape), at_least_1d(input.shape), axis)
        return TensorSpec(index.shape, input.dtype)

    def forward(self, input: Array, index: Array) -> Array:
        axis = checked_axis(self.dim, input.ndim)
        if index.size == 0:
            return np.empty(index.shape, input.dtype)
        table, places = np.atleast_1d(input), np.atleast_1d(index)
        places = counted(places, table.shape[axis], self.counts_back)
        flat = flat_places(table.shape, open_grid(places, axis))
        return np.asarray(table.reshape(-1).take(flat).reshape(index.shape))


@register("torch.index_select")
class IndexSelect(Rearrangement):
    """The slices of one axis at the indices, in their order.

    Parameters:
        counts_back: accept negative indices, which count from the end, and an index of any rank, whose dimensions take
            the place of the axis (ONNX).
    """

    dim: int
    counts_back: bool = False

    def infer(self, input: TensorSpec, index: TensorSpec) -> TensorSpec:
        axis = self._axis(input.shape, index.shape)
        if self.counts_back:
            return TensorSpec(replaced(input.shape, axis, *index.shape), input.dtype)
        if input.rank == 0:
            return input
        return TensorSpec(replaced(input.shape, axis, index.shape[0] if index.shape else 1), input.dtype)

    def forward(self, input: Array, index: Array) -> Array:
        axis = self._axis(input.shape, index.shape)
        if self.counts_back:
            return np.asarray(input.take(counted(index, input.shape[axis]), axis))
        table = np.atleast_1d(input)
        check_positions(index, table.shape[axis])
        picked = np.take(table, np.atleast_1d(index), axis)
        return picked if input.ndim else picked.reshape(())

    def _axis(self, shape: Shape, index: Shape) -> int:
        if self.counts_back:
            if not shape:
                raise ShapeError("input has no axis", found="[]", expected="at least one dimension")
        elif len(index) > 1 or (not shape and index not in ((), (1,), (None,))):
            raise ShapeError("index must be a vector, of one element for a 0-dim input", found=format_shape(index))
        return checked_axis(self.dim, len(shape))


@register("aten::take")
class Take(Rearrangement):
    """Elements by their position in the flattened input; negative ones count from the end."""

    def infer(self, input: TensorSpec, index: TensorSpec) -> TensorSpec:
        return TensorSpec(index.shape, input.dtype)

    def forward(self, input: Array, index: Array) -> Array:
        check_positions(index, input.size, -input.size)
        return np.asarray(input.reshape(-1)[index])


@register("aten::take_along_dim")
class TakeAlongDim(Rearrangement):
    """Like gather, with input and indices broadcast except for dim; without dim both are flattened."""

    dim: int | None = None

    def infer(self, input: TensorSpec, indices: TensorSpec) -> TensorSpec:
        if self.dim is None:
            return TensorSpec((indices.size,), input.dtype)
        axis = self._axis(input.shape, indices.shape)
        shape = broadcast_shapes(replaced(input.shape, axis, 1), replaced(indices.shape, axis, 1))
        return TensorSpec(replaced(shape, axis, indices.shape[axis]), input.dtype)

    def forward(self, input: Array, indices: Array) -> Array:
        if self.dim is None:
            return Gather(dim=0).forward(input.reshape(-1), indices.reshape(-1))
        shape = self.infer(TensorSpec(input.shape, input.dtype), TensorSpec(indices.shape, indices.dtype)).shape
        axis = self._axis(input.shape, indices.shape)
        length = input.shape[axis]
        check_positions(indices, length, -length)
        table = np.broadcast_to(input, sizes(replaced(shape, axis, length)))
        return np.take_along_axis(table, np.broadcast_to(indices, sizes(shape)), axis)

    def _axis(self, shape: Shape, indices: Shape) -> int:
        if not shape or len(shape) != len(indices):
            raise ShapeError("indices need as many dimensions", found=len(indices), expected=len(shape) or "at least 1")
        return checked_axis(self.dim or 0, len(shape))


@register("torch.masked_select")
class MaskedSelect(Rearrangement):
    """The elements under a mask in a row, input and mask broadcast."""

    def infer(self, input: TensorSpec, mask: TensorSpec) -> TensorSpec:
        check_mask(mask.dtype)
        broadcast_shapes(input.shape, mask.shape)
        return TensorSpec((None,), input.dtype)

    def forward(self, input: Array, mask: Array) -> Array:
        table, hits = np.broadcast_arrays(input, mask.astype(np.bool_))
        return np.asarray(table[hits])


@register("torch.nonzero")
class NonZero(Rearrangement):
    """The positions of all elements that are not zero, one a row."""

    infers_itself = True  # it takes any tensor

    def infer(self, input: TensorSpec) -> TensorSpec:
        return TensorSpec((None, input.rank), INT64)

    def forward(self, input: Array) -> Array:
        # As np.argwhere, which takes twice as long.
        return np.array(np.nonzero(input)).T if input.ndim else np.argwhere(input)


@register("aten::nonzero_numpy")
class NonZeroByAxis(Rearrangement):
    """The positions of all elements that are not zero as a list, one tensor an axis."""

    def infer(self, input: TensorSpec) -> Any:
        return positions_spec(input)

    def forward(self, input: Array) -> list[Array]:
        return list(np.nonzero(np.atleast_1d(input)))


def positions_spec(input: TensorSpec) -> list[TensorSpec]:
    """Return the description of the positions of some elements, one tensor an axis."""
    rows: Dim = None
    return [TensorSpec((rows,), INT64)] * max(input.rank, 1)
