"""Scatter operators. Negative positions count from the end."""

from __future__ import annotations

from typing import Any, Final, Literal

import numpy as np

from engine.cancellation import cancellable
from engine.errors import ParameterError, ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.indexing.selection import at_least_1d, check_covers, flat_places, open_grid
from engine.layers.onnx.indexing.gather import counted, index_array, index_spec
from engine.layers.onnx.operands.adapter import as_tensor, dtype_of
from engine.layers.operands.axes import checked_axis, may_match
from engine.layers.operands.fitting import check_added_rank, check_shape
from engine.layers.operands.precision import working_dtype
from engine.promotion import cast
from engine.tensor import UNKNOWN, Array, Number, Shape, TensorSpec, dtype_name, format_shape

_WAYS: Final[dict[str, Any]] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


class _Scatter(Layer):
    """Base of scatters."""

    does_arithmetic = False

    reduction: str = "none"

    def __post_init__(self) -> None:
        if self.reduction not in ("none", *_WAYS):
            raise ParameterError("unknown reduction", found=self.reduction, expected=f"none, {', '.join(_WAYS)}")

    def _written(self, input: Array, places: Any, updates: Array) -> Array:
        """Return a copy of the input with updates at an index."""
        if self.reduction == "none":
            result = input.copy()
            result[places] = updates
            return result
        dtype = working_dtype(input.dtype)
        wide = input.astype(dtype)
        check_added_rank(wide.ndim, wide[places].ndim)
        with np.errstate(all="ignore"):
            _WAYS[self.reduction].at(wide, places, cast(updates, dtype))
        return cast(wide, input.dtype)


def _check_updates(input: TensorSpec, updates: Any) -> None:
    found = dtype_of(updates, input.dtype)
    if found != input.dtype:
        raise ShapeError(
            "updates have another dtype than input", found=dtype_name(found), expected=dtype_name(input.dtype)
        )


@register("ScatterElements", "Scatter")
class ScatterElements(_Scatter):
    """out[i][indices[i][j][k]][k] = updates[i][j][k] for axis 1, in a copy of input; or added, multiplied, ..."""

    axis: int = 0

    def infer(self, input: TensorSpec, indices: Any, updates: Any) -> TensorSpec:
        axis = checked_axis(self.axis, input.rank)
        if indices is not UNKNOWN:
            index = index_spec(indices, input.rank)
            check_covers(at_least_1d(index.shape), at_least_1d(input.shape), axis)
            _check_same(index.shape, updates)
        _check_updates(input, updates)
        return input

    def forward(self, input: Array, indices: Any, updates: Array | Number) -> Array:
        spec = TensorSpec(input.shape, input.dtype)
        index = index_array(indices, input.ndim)
        source = as_tensor(updates, input.dtype, "updates")
        if not isinstance(updates, np.ndarray):
            source = np.broadcast_to(source, index.shape)
        self.infer(spec, TensorSpec(index.shape, index.dtype), TensorSpec(source.shape, source.dtype))
        table, places = np.atleast_1d(input), np.atleast_1d(index)
        axis = checked_axis(self.axis, input.ndim)
        flat = flat_places(table.shape, open_grid(counted(places, table.shape[axis]), axis))
        result = self._written(table.reshape(-1), flat.reshape(-1), source.reshape(-1))
        return result.reshape(input.shape)


def _check_same(index: Shape, updates: Any) -> None:
    if isinstance(updates, TensorSpec):
        check_shape(updates.shape, index, "updates do not fit")


@register("ScatterND")
class ScatterND(_Scatter):
    """out[indices[i]] = updates[i] in a copy of input: rows of indices name elements or slices; or added, ...

    Shapes:
        input (*D), indices (*I, K), updates (*I, *D[K:])  ->  (*D)
    """

    def infer(self, input: TensorSpec, indices: Any, updates: Any) -> TensorSpec:
        if indices is not UNKNOWN:
            index = index_spec(indices, 1)
            expected = _slices(input.shape, index.shape)
            if expected is not None:
                _check_same(expected, updates)
        _check_updates(input, updates)
        return input

    def forward(self, input: Array, indices: Any, updates: Array | Number) -> Array:
        index = index_array(indices, 1)
        source = as_tensor(updates, input.dtype, "updates")
        expected = _slices(input.shape, index.shape)
        if not isinstance(updates, np.ndarray):
            source = np.broadcast_to(source, tuple(size or 0 for size in expected or ()))
        spec = TensorSpec(input.shape, input.dtype)
        self.infer(spec, TensorSpec(index.shape, index.dtype), TensorSpec(source.shape, source.dtype))
        places = tuple(counted(index[..., k], input.shape[k]) for k in range(index.shape[-1]))
        return self._written(input, places, source)


def _slices(shape: Shape, index: Shape) -> Shape | None:
    """Return the shape of the updates; None while the number of indexed axes is unknown."""
    if not index or (index[-1] is not None and index[-1] > len(shape)):
        raise ShapeError("indices do not fit", found=format_shape(index), expected=f"rows of at most {len(shape)}")
    return None if index[-1] is None else (*index[:-1], *shape[index[-1] :])


@register("TensorScatter", positional=("input", "update", "write_indices"))
class TensorScatter(Layer):
    """Copy of the input with update written along one axis, from a position of each batch.

    Shapes:
        input (B, A, L, *D), update (B, A, M, *D), write_indices (B,)  ->  as input, for axis 2
    Parameters:
        mode: linear, or circular: positions wrap around.
    """

    axis: int = -2
    mode: Literal["linear", "circular"] = "linear"

    def infer(self, input: TensorSpec, update: TensorSpec, write_indices: Any = None) -> TensorSpec:
        axis = checked_axis(self.axis, input.rank)
        expected = (*input.shape[:axis], None, *input.shape[axis + 1 :])
        if axis == 0 or not may_match(update.shape, expected):
            found = format_shape(update.shape)
            raise ShapeError("update does not fit", found=found, expected=format_shape(expected))
        return input

    def forward(self, input: Array, update: Array, write_indices: Any = None) -> Array:
        self.infer(TensorSpec(input.shape, input.dtype), TensorSpec(update.shape, update.dtype))
        axis, result = checked_axis(self.axis, input.ndim), input.copy()
        length, count = input.shape[axis], update.shape[axis]
        starts = np.zeros(len(input), np.int64) if write_indices is None else index_array(write_indices, 1)
        if starts.shape != (len(input),):
            raise ShapeError("write_indices do not fit", found=list(starts.shape), expected=f"[{len(input)}]")
        for batch, start in enumerate(cancellable(starts.tolist())):
            places = np.arange(count) + start
            if self.mode == "circular" and length:
                places = places % length
            result[batch][(slice(None),) * (axis - 1) + (counted(places, length),)] = update[batch]
        return result
