"""Search operators: extremes, largest elements, distinct elements, nonzero elements."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from engine.errors import ShapeError
from engine.layers.definition.layer import NO_ANNOTATIONS, Annotations, Layer
from engine.layers.definition.registry import register
from engine.layers.onnx.indexing.gather import index_array
from engine.layers.onnx.operands.adapter import UnaryAdapter, as_tensor, check_fits, present, selected, shape_of
from engine.layers.onnx.operands.constants import needed, single, whole_number
from engine.layers.operands.axes import checked_axis, replaced
from engine.layers.operands.precision import INT64, check_ordered
from engine.layers.reduction.extremum import ArgMax, ArgMin
from engine.layers.shape.shape import Rearrangement
from engine.layers.sorting.sorting import sort_order
from engine.limits import check_size
from engine.promotion import cast
from engine.tensor import UNKNOWN, Array, Number, TensorSpec, known_value, product


class _ArgExtreme(UnaryAdapter):
    """Base of operators that return the index of an extreme along an axis.

    Parameters:
        select_last_index: return the last of equal elements.
    """

    extreme: ClassVar[type[ArgMax | ArgMin]]

    axis: int = 0
    keepdims: bool = True
    select_last_index: bool = False

    def canonical(self, input: TensorSpec) -> Layer:
        axis = checked_axis(self.axis, input.rank)
        layer = self.extreme(dim=axis, keepdim=self.keepdims)
        return _Last(first=layer, axis=axis) if self.select_last_index else layer


class _Last(Layer):
    """Last index of the extreme, where ``first`` returns the first."""

    first: Any
    axis: int

    def infer(self, input: TensorSpec) -> Any:
        return self.first.infer(input)

    def forward(self, input: Array) -> Any:
        row = np.atleast_1d(input)
        found = self.first.forward(np.flip(row, self.axis))
        return (row.shape[self.axis] - 1 - found).reshape(() if input.ndim == 0 else found.shape)


@register("ArgMax")
class OnnxArgMax(_ArgExtreme):
    """Index of the largest element along an axis."""

    canonical_layers = (ArgMax,)
    extreme = ArgMax


@register("ArgMin")
class OnnxArgMin(_ArgExtreme):
    """Index of the smallest element along an axis."""

    canonical_layers = (ArgMin,)
    extreme = ArgMin


@register("TopK", positional=("input", "k"))
class OnnxTopK(Layer):
    """The k largest or smallest elements along an axis, in order, and their indices; equal ones in input order."""

    axis: int = -1
    largest: bool = True
    sorted: bool = True
    annotations: Annotations = NO_ANNOTATIONS

    def infer(self, input: TensorSpec, k: Any) -> Any:
        axis, count = checked_axis(self.axis, input.rank), whole_number(k, "k")
        length = input.shape[axis] if input.rank else 1
        self._check(count, length)
        shape = replaced(input.shape, axis, count) if input.rank else ()
        results = (TensorSpec(shape, input.dtype), TensorSpec(shape, INT64))
        return selected(results, present(results, self.annotations))

    def forward(self, input: Array, k: Any) -> Any:
        axis, count = checked_axis(self.axis, input.ndim), needed(whole_number(k, "k"), "k")
        check_fits(input.ndim > 0, "input", input.shape, "an axis")
        self._check(count, input.shape[axis])
        rows = np.moveaxis(input, axis, -1)
        places = sort_order(rows, rows.ndim - 1, self.largest)[..., :count]
        values = np.take_along_axis(rows, places, -1)
        results = [np.moveaxis(each, -1, axis) for each in (values, places.astype(np.int64, copy=False))]
        specs = [TensorSpec(each.shape, each.dtype) for each in results]
        return selected(results, present(specs, self.annotations))

    def _check(self, count: int | None, length: int | None) -> None:
        if count is not None and (count < 0 or (length is not None and count > length)):
            raise ShapeError("not that many elements", found=f"k = {count}", expected=f"0 to {length}")


@register("NonZero")
class OnnxNonZero(Rearrangement):
    """Positions of all nonzero elements, one per column."""

    def infer(self, input: TensorSpec) -> TensorSpec:
        return TensorSpec((max(input.rank, 1), None), INT64)

    def forward(self, input: Array) -> Array:
        return np.ascontiguousarray(np.argwhere(np.atleast_1d(input)).T)


@register("Unique")
class OnnxUnique(Layer):
    """Distinct elements, or slices along an axis: values, first indices, inverse indices, counts.

    Parameters:
        sorted: in ascending order; else in order of first occurrence.
    """

    axis: int | None = None
    sorted: bool = True
    annotations: Annotations = NO_ANNOTATIONS

    def infer(self, input: TensorSpec) -> Any:
        results = self._specs(input)
        return selected(results, present(results, self.annotations))

    def _specs(self, input: TensorSpec) -> list[TensorSpec]:
        axis = None if self.axis is None else checked_axis(self.axis, input.rank)
        shape = (None,) if axis is None else replaced(input.shape, axis, None)
        length = product(input.shape) if axis is None else input.shape[axis]
        vectors = [TensorSpec((size,), INT64) for size in (None, length, None)]
        return [TensorSpec(shape, input.dtype), *vectors]

    def forward(self, input: Array) -> Any:
        axis = None if self.axis is None else checked_axis(self.axis, input.ndim)
        values, first, inverse, counts = np.unique(
            input, return_index=True, return_inverse=True, return_counts=True, axis=axis, equal_nan=False
        )
        inverse = inverse.reshape(-1)
        if not self.sorted:
            order = np.argsort(first, kind="stable")
            back = np.empty_like(order)
            back[order] = np.arange(len(order))
            values, first, counts = values.take(order, 0 if axis is None else axis), first[order], counts[order]
            inverse = back[inverse]
        results = [values, *(each.astype(np.int64, copy=False) for each in (first, inverse, counts))]
        chosen = present(self._specs(TensorSpec(input.shape, input.dtype)), self.annotations)
        return selected(results, chosen)


@register("Compress")
class Compress(Rearrangement):
    """Slices along an axis where condition holds; without an axis, elements of the flattened input."""

    axis: int | None = None

    def infer(self, input: TensorSpec, condition: TensorSpec) -> TensorSpec:
        if self.axis is None:
            return TensorSpec((None,), input.dtype)
        return TensorSpec(replaced(input.shape, checked_axis(self.axis, input.rank), None), input.dtype)

    def forward(self, input: Array, condition: Array | bool) -> Array:
        hits = np.atleast_1d(np.asarray(condition, np.bool_))
        table = np.atleast_1d(input)
        row, axis = (input.reshape(-1), 0) if self.axis is None else (table, checked_axis(self.axis, table.ndim))
        check_fits(hits.ndim == 1 and hits.size <= row.shape[axis], "condition", hits.shape, f"[{row.shape[axis]}]")
        return row.take(np.flatnonzero(hits), axis)


@register("OneHot", positional=("indices", "depth", "values"))
class OneHot(Layer):
    """One-hot encoding along a new axis: values[1] at each index (negative from the end), values[0] elsewhere."""

    axis: int = -1
    annotations: Annotations = NO_ANNOTATIONS

    def infer(self, indices: Any, depth: Any, values: TensorSpec) -> Any:
        if indices is UNKNOWN:
            return UNKNOWN
        shape = shape_of(indices)
        axis = checked_axis(self.axis, len(shape) + 1)
        check_fits(values.shape in ((2,), (None,)), "values", values.shape, "[2]")
        depth = known_value(depth)
        size = None if depth is UNKNOWN else self._depth(depth)
        return TensorSpec((*shape[:axis], size, *shape[axis:]), values.dtype)

    def forward(self, indices: Any, depth: Array | Number, values: Array) -> Array:
        index = np.asarray(index_array(indices, 0) if not isinstance(indices, np.ndarray) else indices)
        size = self._depth(depth)
        check_fits(values.shape == (2,), "values", values.shape, "[2]")
        axis = checked_axis(self.axis, index.ndim + 1)
        whole = cast(index, np.dtype(np.int64)) if index.dtype.kind == "f" else index
        check_size((*index.shape, size), np.dtype(np.bool_))
        places = np.where(whole < 0, whole + size, whole)
        hits = np.expand_dims(places, axis) == np.arange(size).reshape(-1, *(1,) * (index.ndim - axis))
        return cast(np.where(hits, values[1], values[0]), values.dtype)

    def _depth(self, depth: Any) -> int:
        size = as_tensor(depth, INT64, "depth")
        check_fits(size.size == 1, "depth", size.shape, "one number")
        check_ordered(size.dtype)
        result = single(size, "depth")
        if not 0 <= result < np.inf:
            raise ShapeError("depth is negative" if result < 0 else "depth is not a number", found=result)
        return int(result)
