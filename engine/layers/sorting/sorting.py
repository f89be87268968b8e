"""Sorting and the largest or smallest few. NaN counts as larger than every number; equal elements keep their order."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.definition.composite import CallLayer, Composite
from engine.layers.definition.layer import NO_ANNOTATIONS, Annotations, Layer
from engine.layers.definition.overload import overload
from engine.layers.definition.registry import register
from engine.layers.operands.axes import checked_axis, replaced
from engine.layers.operands.precision import INT64, check_ordered, working_dtype
from engine.promotion import cast
from engine.tensor import Array, Dim, TensorSpec


def sort_order(input: Array, axis: int, descending: bool = False) -> Array:
    """Return the positions of the elements along an axis in sorted order, stable for equal ones.

    Raises:
        ShapeError: for complex numbers.
    """
    check_ordered(input.dtype)
    wide = cast(input, working_dtype(input.dtype))
    if not descending:
        return np.argsort(wide, axis, stable=True)
    # Sorting the reversed elements and reversing the result keeps equal elements in their order.
    backwards = np.argsort(np.flip(wide, axis), axis, stable=True)
    return np.flip(input.shape[axis] - 1 - backwards, axis)


@register("torch.sort")
class Sort(Layer):
    """The elements in order along dim, and their original positions."""

    dim: int = -1
    descending: bool = False
    stable: bool | None = None
    annotations: Annotations = NO_ANNOTATIONS

    def infer(self, input: TensorSpec) -> Any:
        check_ordered(input.dtype)
        checked_axis(self.dim, input.rank)
        return self.arranged(input, TensorSpec(input.shape, INT64))

    def forward(self, input: Array) -> Any:
        axis = checked_axis(self.dim, input.ndim)
        row = np.atleast_1d(input)
        places = sort_order(row, axis, self.descending)
        values = np.take_along_axis(row, places, axis)
        return self.arranged(values.reshape(input.shape), places.reshape(input.shape))

    def arranged(self, values: Any, places: Any) -> Any:
        return values if len(self.annotations.outputs) == 1 else (values, places)


overload("aten::sort", (Sort, "input dim descending"), (Sort, "input stable dim descending"))


class ArgSort(Layer):
    """The positions of the elements in order along dim."""

    dim: int = -1
    descending: bool = False
    stable: bool | None = None

    def infer(self, input: TensorSpec) -> TensorSpec:
        check_ordered(input.dtype)
        checked_axis(self.dim, input.rank)
        return TensorSpec(input.shape, INT64)

    def forward(self, input: Array) -> Array:
        axis = checked_axis(self.dim, input.ndim)
        return sort_order(np.atleast_1d(input), axis, self.descending).reshape(input.shape)


overload("aten::argsort", (ArgSort, "input dim descending"), (ArgSort, "input stable dim descending"))


@register("aten::msort")
class SortRows(Composite):
    """The elements in order along the first axis."""

    def compose(self, call: CallLayer, input: Array) -> Any:
        return call(Sort(dim=0), input)


@register("torch.topk", positional=("input", "k", "dim", "largest", "sorted"))
class TopK(Layer):
    """The k largest or smallest elements along dim, in order, and their positions."""

    k: tuple[Dim, ...]
    dim: int = -1
    largest: bool = True
    sorted: bool = True
    annotations: Annotations = NO_ANNOTATIONS

    def infer(self, input: TensorSpec) -> Any:
        check_ordered(input.dtype)
        axis = checked_axis(self.dim, input.rank)
        shape = replaced(input.shape, axis, self._count(input.shape[axis])) if input.rank else input.shape
        return self.arranged(TensorSpec(shape, input.dtype), TensorSpec(shape, INT64))

    def forward(self, input: Array) -> Any:
        axis = checked_axis(self.dim, input.ndim)
        row = np.atleast_1d(input)
        count = self._count(row.shape[axis]) if input.ndim else 1
        places = sort_order(row, axis, self.largest).take(range(count or 0), axis)
        values = np.take_along_axis(row, places, axis)
        return self.arranged(values, places) if input.ndim else self.arranged(values[0], places[0])

    def _count(self, length: Dim) -> Dim:
        if len(self.k) != 1:
            raise ParameterError("k must be a number", found=list(self.k))
        k = self.k[0]
        if k is not None and (k < 0 or (length is not None and k > length)):
            raise ShapeError("k is out of range", found=k, expected=f"0 to {length}")
        return k

    def arranged(self, values: Any, places: Any) -> Any:
        return values if len(self.annotations.outputs) == 1 else (values, places)


@register("torch.kthvalue", positional=("input", "k", "dim", "keepdim"))
class KthValue(Layer):
    """The k-th smallest element along dim, counted from 1, and its position."""

    k: int
    dim: int = -1
    keepdim: bool = False

    def infer(self, input: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
        check_ordered(input.dtype)
        axis = checked_axis(self.dim, input.rank)
        length = input.shape[axis] if input.rank else 1
        if self.k < 1 or (length is not None and self.k > length):
            raise ShapeError("k is out of range", found=self.k, expected=f"1 to {length}")
        kept = replaced(input.shape, axis, 1) if self.keepdim else replaced(input.shape, axis)
        shape = kept if input.rank else ()
        return TensorSpec(shape, input.dtype), TensorSpec(shape, INT64)

    def forward(self, input: Array) -> tuple[Array, Array]:
        shape = self.infer(TensorSpec(input.shape, input.dtype))[0].shape
        axis = checked_axis(self.dim, input.ndim)
        row = np.atleast_1d(input)
        places = sort_order(row, axis).take([self.k - 1], axis)
        values = np.take_along_axis(row, places, axis)
        return values.reshape(shape), places.reshape(shape)  # type: ignore[arg-type]
