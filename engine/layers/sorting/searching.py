"""Positions of values among others: in sorted rows, in intervals, among the distinct ones."""

from __future__ import annotations

from typing import Final, Literal

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.operands.axes import checked_axis, may_match, replaced
from engine.layers.operands.precision import INT64
from engine.limits import check_size
from engine.promotion import cast
from engine.tensor import Array, Number, Shape, TensorSpec, dtype_name, format_shape

_INT32: Final = np.dtype(np.int32)


@register(
    "aten::searchsorted",
    positional=("sorted_sequence", "values", "out_int32", "right", "side", "sorter"),
)
class SearchSorted(Layer):
    """The number of elements of the sorted last axis before each value; including equal ones if right.

    Shapes:
        sorted_sequence (n) and values of any shape, or both with the same dimensions but for the last.
    """

    out_int32: bool = False
    right: bool = False
    side: Literal["left", "right"] | None = None

    def infer(
        self, sorted_sequence: TensorSpec, values: TensorSpec | Number, sorter: TensorSpec | None = None
    ) -> TensorSpec:
        shape = values.shape if isinstance(values, TensorSpec) else ()
        _check_rows(sorted_sequence.shape, shape)
        return TensorSpec(shape, _INT32 if self.out_int32 else INT64)

    def forward(self, sorted_sequence: Array, values: Array | Number, sorter: Array | None = None) -> Array:
        sought = np.asarray(values)
        rows = sorted_sequence if sorter is None else np.take_along_axis(sorted_sequence, sorter, -1)
        is_right = self.right or self.side == "right"
        return count_before(rows, sought, is_right).astype(_INT32 if self.out_int32 else INT64)


def _check_rows(rows: Shape, values: Shape) -> None:
    if not rows or (len(rows) > 1 and not may_match(rows[:-1], values[:-1])):
        found = f"{format_shape(values)} among {format_shape(rows)}"
        raise ShapeError("values do not fit the rows", found=found, expected="dimensions equal except the last")


def count_before(rows: Array, values: Array, is_right: bool) -> Array:
    """Count the elements of each sorted row that come before each of its values.

    The bisection is PyTorch's, so that unsorted rows, or rows with NaN, give the same numbers.
    """
    length = rows.shape[-1]
    low, high = np.zeros(values.shape, INT64), np.full(values.shape, length, INT64)
    for _ in range(length.bit_length()):
        is_unfinished, middle = low < high, (low + high) // 2
        inside = np.minimum(middle, length - 1)
        element = rows[inside] if rows.ndim == 1 else np.take_along_axis(rows, inside, -1)
        goes_up = is_unfinished & ~(element > values if is_right else element >= values)
        low, high = np.where(goes_up, middle + 1, low), np.where(is_unfinished & ~goes_up, middle, high)
    return low


@register("aten::bucketize", positional=("input", "boundaries", "out_int32", "right"))
class Bucketize(Layer):
    """The interval between sorted boundaries a value lies in; a boundary ends one, or starts it if right."""

    out_int32: bool = False
    right: bool = False

    def infer(self, input: TensorSpec | Number, boundaries: TensorSpec) -> TensorSpec:
        if boundaries.rank != 1:
            raise ShapeError("boundaries must be a vector", found=format_shape(boundaries.shape))
        shape = input.shape if isinstance(input, TensorSpec) else ()
        return TensorSpec(shape, _INT32 if self.out_int32 else INT64)

    def forward(self, input: Array | Number, boundaries: Array) -> Array:
        dtype = self.infer(0, TensorSpec(boundaries.shape, boundaries.dtype)).dtype
        return count_before(boundaries, np.asarray(input), self.right).astype(dtype)


@register("aten::bincount", positional=("input", "weights", "minlength"))
class BinCount(Layer):
    """The count of each number below the largest, or minlength; the sum of their weights if given."""

    minlength: int = 0

    def __post_init__(self) -> None:
        if self.minlength < 0:
            raise ParameterError("minlength must not be negative", found=self.minlength)

    def infer(self, input: TensorSpec, weights: TensorSpec | None = None) -> TensorSpec:
        if input.rank != 1:
            raise ShapeError("a vector is needed", found=format_shape(input.shape))
        if weights is None or input.size == 0:  # for empty input PyTorch returns integers, whatever the weights are
            return TensorSpec((None,), INT64)
        if weights.dtype.kind == "c":
            raise ShapeError("weights must be real", found=weights.dtype)
        return TensorSpec((None,), weights.dtype if weights.dtype == np.float32 else np.dtype(np.float64))

    def forward(self, input: Array, weights: Array | None = None) -> Array:
        given = None if weights is None else TensorSpec(weights.shape, weights.dtype)
        dtype = self.infer(TensorSpec(input.shape, input.dtype), given).dtype
        if input.dtype.kind not in "iu" or (input.size and input.min() < 0):
            raise ShapeError("only integers from 0 on can be counted", found=input.dtype)
        if not input.size:
            return np.zeros(self.minlength, INT64)
        if weights is not None and weights.shape != input.shape:
            raise ShapeError(
                "weights do not fit", found=format_shape(weights.shape), expected=format_shape(input.shape)
            )
        check_size((max(int(input.max()) + 1, self.minlength),), INT64)
        return np.bincount(input, weights, self.minlength).astype(dtype)


@register("aten::isin", positional=("elements", "test_elements", "assume_unique", "invert"))
class IsIn(Layer):
    """True for elements that are among others; negated if invert."""

    assume_unique: bool = False
    invert: bool = False

    def infer(self, elements: TensorSpec | Number, test_elements: TensorSpec | Number) -> TensorSpec:
        return TensorSpec(elements.shape if isinstance(elements, TensorSpec) else (), np.dtype(np.bool_))

    def forward(self, elements: Array | Number, test_elements: Array | Number) -> Array:
        return np.asarray(np.isin(elements, test_elements, invert=self.invert))


@register("aten::histc")
class Histogram(Layer):
    """The number of elements in each of ``bins`` equal intervals from min to max; of all values, if both are equal."""

    bins: int = 100
    min: float = 0
    max: float = 0

    def __post_init__(self) -> None:
        if self.bins < 1 or not -np.inf < self.min <= self.max < np.inf:
            raise ParameterError("invalid bins", found=f"{self.bins} from {self.min} to {self.max}")

    def infer(self, input: TensorSpec) -> TensorSpec:
        if input.dtype.kind == "c":
            raise ShapeError("only real numbers lie in intervals", found=dtype_name(input.dtype))
        return TensorSpec((self.bins,), input.dtype)

    def forward(self, input: Array) -> Array:
        low, high = self._range(input)
        with np.errstate(all="ignore"):
            edges = np.linspace(low, high, self.bins + 1).astype(np.result_type(input.dtype, np.float32))
        # Division cannot separate bins narrower than the spacing of numbers, or a range that overflows.
        if not (np.isfinite(high - low) and (np.diff(edges) > 0).all()):
            raise ShapeError("invalid bins for these values", found=f"{self.bins} from {low} to {high}")
        return cast(np.histogram(input, self.bins, (low, high))[0], input.dtype)

    def _range(self, input: Array) -> tuple[float, float]:
        low, high = self.min, self.max
        if low == high and input.size:
            low, high = float(input.min()), float(input.max())
        if not -np.inf < low <= high < np.inf:
            raise ShapeError("the range of the values is not finite", found=f"{low} to {high}")
        return (low - 1, high + 1) if low == high else (low, high)


_NOTHING: Final = np.zeros(0, INT64)


class _Distinct(Layer):
    """Base of layers that return distinct elements, the index of every element among them, and their counts.

    The latter two are empty unless requested.
    """

    return_inverse: bool = False
    return_counts: bool = False

    def infer(self, input: TensorSpec) -> tuple[TensorSpec, ...]:
        return self._specs(TensorSpec((None,), input.dtype), input.shape)

    def _specs(self, values: TensorSpec, places: Shape) -> tuple[TensorSpec, ...]:
        inverse, counts = places if self.return_inverse else (0,), (None,) if self.return_counts else (0,)
        return values, TensorSpec(inverse, INT64), TensorSpec(counts, INT64)

    def _asked(self, values: Array, inverse: Array, counts: Array) -> tuple[Array, Array, Array]:
        return values, inverse if self.return_inverse else _NOTHING, counts if self.return_counts else _NOTHING


@register("aten::_unique2", positional=("input", "sorted", "return_inverse", "return_counts"))
class Unique(_Distinct):
    """The distinct elements in order; every NaN is distinct."""

    sorted: bool = True

    def forward(self, input: Array) -> tuple[Array, Array, Array]:
        values, inverse, counts = np.unique(input, return_inverse=True, return_counts=True, equal_nan=False)
        return self._asked(values, inverse.reshape(input.shape), counts)


@register("aten::unique_dim", positional=("input", "dim", "sorted", "return_inverse", "return_counts"))
class UniqueSlices(_Distinct):
    """The distinct slices along dim in order."""

    dim: int
    sorted: bool = True

    def infer(self, input: TensorSpec) -> tuple[TensorSpec, ...]:
        axis = checked_axis(self.dim, input.rank)
        return self._specs(TensorSpec(replaced(input.shape, axis, None), input.dtype), (input.shape[axis],))

    def forward(self, input: Array) -> tuple[Array, Array, Array]:
        axis = checked_axis(self.dim, input.ndim)
        values, inverse, counts = np.unique(input, return_inverse=True, return_counts=True, axis=axis, equal_nan=False)
        return self._asked(values, inverse.reshape(-1), counts)


@register("aten::unique_consecutive", positional=("input", "return_inverse", "return_counts", "dim"))
class UniqueRuns(_Distinct):
    """The elements in their order, without those equal to the one before; slices along dim if given."""

    dim: int | None = None

    def infer(self, input: TensorSpec) -> tuple[TensorSpec, ...]:
        if self.dim is None:
            return super().infer(input)
        axis = checked_axis(self.dim, input.rank)
        return self._specs(TensorSpec(replaced(input.shape, axis, None), input.dtype), (input.shape[axis],))

    def forward(self, input: Array) -> tuple[Array, Array, Array]:
        axis = 0 if self.dim is None else checked_axis(self.dim, input.ndim)
        rows = input.reshape(-1, 1) if self.dim is None else np.moveaxis(input, axis, 0).reshape(input.shape[axis], -1)
        starts = np.ones(len(rows), np.bool_)
        starts[1:] = (rows[1:] != rows[:-1]).any(1)
        kept = np.flatnonzero(starts)
        values = input.reshape(-1)[kept] if self.dim is None else np.take(input, kept, axis)
        inverse = np.cumsum(starts) - 1
        return self._asked(
            values, inverse.reshape(input.shape) if self.dim is None else inverse, np.diff(kept, append=len(rows))
        )
