"""Elements picked by position. Negative positions count from the end."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.errors import ShapeError
from engine.layers.definition.layer import NO_ANNOTATIONS, Annotations
from engine.layers.definition.registry import register
from engine.layers.indexing.selection import at_least_1d, check_covers, check_positions, flat_places, open_grid
from engine.layers.onnx.operands.adapter import check_fits
from engine.layers.operands.axes import checked_axis, may_match, replaced
from engine.layers.operands.precision import INT64
from engine.layers.shape.shape import Rearrangement
from engine.tensor import UNKNOWN, Array, Dim, Shape, TensorSpec, format_shape


def counted(index: Array, length: int) -> Array:
    """Return positions counted from 0.

    Raises:
        ShapeError: a position is out of range.
    """
    check_positions(index, length, -length)
    return np.where(index < 0, index + length, index) if index.size and index.min() < 0 else index


def index_spec(index: Any, rank: int) -> TensorSpec:
    """Return the spec of an index; one that comes as numbers has lost its dimensions and gets ``rank`` of them."""
    if isinstance(index, TensorSpec):
        return index
    if isinstance(index, tuple):
        return TensorSpec((len(index),), INT64)
    return TensorSpec((1,) * max(rank, 0), INT64)


def index_array(index: Any, rank: int) -> Array:
    """Return an index as a tensor; a number gets ``rank`` dimensions.

    Raises:
        ShapeError: it has no integers.
    """
    if isinstance(index, np.ndarray):
        return index
    array = np.asarray(index)
    if array.dtype.kind not in "iu":
        raise ShapeError("an index must be of integers", found=repr(index))
    return array if array.ndim else array.reshape((1,) * max(rank, 0))


@register("Gather")
class OnnxGather(Rearrangement):
    """Slices of one axis selected by indices.

    Shapes:
        input (A, L, B), indices (*I)  ->  (A, *I, B)
    """

    axis: int = 0
    annotations: Annotations = NO_ANNOTATIONS

    def infer(self, input: TensorSpec, indices: Any) -> Any:
        if indices is UNKNOWN:
            return UNKNOWN
        axis = self._axis(input.shape)
        return TensorSpec(replaced(input.shape, axis, *index_spec(indices, self._rank(input.rank)).shape), input.dtype)

    def forward(self, input: Array, indices: Any) -> Array:
        axis = self._axis(input.shape)
        places = counted(index_array(indices, self._rank(input.ndim)), input.shape[axis])
        return np.asarray(input.take(places, axis))

    def _axis(self, shape: Shape) -> int:
        check_fits(bool(shape), "input", shape, "an axis to gather from")
        return checked_axis(self.axis, len(shape))

    def _rank(self, rank: int) -> int:
        """Return the rank of an index that comes as a number, from the annotated result; 0 without one."""
        noted = self.annotations.outputs[0]
        return max(noted.rank - rank + 1, 0) if noted is not None else 0


@register("GatherElements")
class GatherElements(Rearrangement):
    """out[i][j][k] = input[i][indices[i][j][k]][k] for axis 1."""

    axis: int = 0

    def infer(self, input: TensorSpec, indices: Any) -> Any:
        if indices is UNKNOWN:
            return UNKNOWN
        axis, index = checked_axis(self.axis, input.rank), index_spec(indices, input.rank)
        check_covers(at_least_1d(index.shape), at_least_1d(input.shape), axis)
        return TensorSpec(index.shape, input.dtype)

    def forward(self, input: Array, indices: Any) -> Array:
        axis, index = checked_axis(self.axis, input.ndim), index_array(indices, input.ndim)
        check_covers(at_least_1d(index.shape), at_least_1d(input.shape), axis)
        table, places = np.atleast_1d(input), np.atleast_1d(index)
        places = counted(places, table.shape[axis])
        flat = flat_places(table.shape, open_grid(places, axis))
        return np.asarray(table.reshape(-1).take(flat).reshape(index.shape))


@register("GatherND")
class GatherND(Rearrangement):
    """out[i] = input[indices[i]]: rows of indices name elements or slices, within the same batch.

    Shapes:
        input (*B, *D), indices (*B, *I, K)  ->  (*B, *I, *D[K:])
    """

    batch_dims: int = 0
    annotations: Annotations = NO_ANNOTATIONS

    def infer(self, input: TensorSpec, indices: Any) -> Any:
        if indices is UNKNOWN:
            return UNKNOWN
        index = index_spec(indices, self._rank(input.rank))
        depth = self._depth(input.shape, index.shape)
        if depth is None:
            return UNKNOWN
        return TensorSpec((*index.shape[:-1], *input.shape[self.batch_dims + depth :]), input.dtype)

    def forward(self, input: Array, indices: Any) -> Array:
        index = index_array(indices, self._rank(input.ndim))
        depth = self._depth(input.shape, index.shape) or 0
        lead = list(input.shape[: self.batch_dims])
        batches = [np.arange(size).reshape(-1, *(1,) * (index.ndim - 2 - axis)) for axis, size in enumerate(lead)]
        columns = [counted(index[..., k], input.shape[self.batch_dims + k]) for k in range(depth)]
        if not depth and not batches:
            return np.broadcast_to(input, (*index.shape[:-1], *input.shape))
        return np.asarray(input[(*batches, *columns)])

    def _depth(self, shape: Shape, index: Shape) -> Dim:
        """Return the number of axes that a row of indices covers."""
        batch = self.batch_dims
        fits = len(index) > 0 and 0 <= batch < len(index) and batch <= len(shape)
        fits = fits and may_match(shape[:batch], index[:batch])
        if not fits or (index[-1] is not None and batch + index[-1] > len(shape)):
            found = f"{format_shape(index)} into {format_shape(shape)} with {batch} batch dims"
            raise ShapeError("indices do not fit", found=found)
        return index[-1]

    def _rank(self, rank: int) -> int:
        """Return the rank of an index given as a number: 2 if the annotated result has the input's rank, else 1."""
        noted = self.annotations.outputs[0]
        return 1 if noted is None or noted.rank < rank else 2
