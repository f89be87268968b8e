"""Operators that write or add values at positions along one axis.

Half precision is summed in float32 and rounded once. If a plain write hits a position twice, the last one counts.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.indexing.combining import check_way, reduced, written
from engine.layers.indexing.selection import at_least_1d, check_covers, check_positions, counted, flat_places, open_grid
from engine.layers.operands.axes import checked_axis, replaced, sizes
from engine.layers.operands.fitting import check_category, check_shape
from engine.layers.operands.precision import working_dtype
from engine.promotion import cast
from engine.tensor import Array, Number, Shape, TensorSpec, format_shape, specs_of


class _Scatter(Layer):
    """Base of layers that write the elements of one tensor at positions of an index of its shape.

    Parameters:
        counts_back: accept negative indices, which count from the end (ONNX).
    """

    _takes_numbers: ClassVar[bool] = False

    dim: int
    counts_back: bool = False

    def infer(self, input: TensorSpec, index: TensorSpec, src: Any) -> TensorSpec:
        self._check(input, index.shape, src)
        return input

    def _check(self, input: TensorSpec, index: Shape, src: Any) -> int:
        axis = checked_axis(self.dim, input.rank)
        if isinstance(src, TensorSpec) and (src.shape or not self._takes_numbers):
            check_category(src.dtype, input.dtype)
            if 0 not in index:
                check_covers(at_least_1d(index), at_least_1d(src.shape), None)
        if 0 not in index:
            check_covers(at_least_1d(index), at_least_1d(input.shape), axis)
        return axis

    def _places(self, input: Array, index: Array, src: Array) -> tuple[Array, Array]:
        """Return positions in the flattened input, and their source elements."""
        axis = self._check(TensorSpec(input.shape, input.dtype), index.shape, TensorSpec(src.shape, src.dtype))
        if not index.size:  # empty, whatever its shape
            return np.empty(0, np.int64), np.empty(0, src.dtype)
        index = counted(np.atleast_1d(index), np.atleast_1d(input).shape[axis], self.counts_back)
        source = (
            np.atleast_1d(src)[tuple(slice(n) for n in index.shape)] if src.ndim else np.broadcast_to(src, index.shape)
        )
        return flat_places(np.atleast_1d(input).shape, open_grid(index, axis)), source


@register("torch.scatter", renamed={"value": "src"}, positional=("input", "dim", "index", "src", "reduce"))
class Scatter(_Scatter):
    """out[index[i][j]][j] = src[i][j] for dim 0, src a tensor or one number; reduce adds or multiplies instead."""

    _takes_numbers = True

    reduce: Literal["add", "multiply"] | None = None

    def forward(self, input: Array, index: Array, src: Array | Number) -> Array:
        given = src if isinstance(src, np.ndarray) and src.ndim else cast(src, input.dtype)
        places, source = self._places(input, index, given)
        return written(input, places, source, self.reduce)


@register("torch.scatter_reduce", positional=("input", "dim", "index", "src", "reduce", "include_self"))
class ScatterReduce(_Scatter):
    """The sum, product, mean, largest or smallest of all elements of src with the same position.

    The input's own element is included if include_self; it stays where no element arrives.
    """

    reduce: str
    include_self: bool = True

    def __post_init__(self) -> None:
        check_way(self.reduce)

    def forward(self, input: Array, index: Array, src: Array) -> Array:
        places, source = self._places(input, index, src)
        return reduced(input, places, source, self.reduce, self.include_self)


class _IndexWrite(Layer):
    """Base of layers that write slices of one axis, given by a vector of indices."""

    counts_back: ClassVar[bool] = False

    dim: int

    def _spec(self, input: TensorSpec, index: TensorSpec, source: TensorSpec) -> TensorSpec:
        check_category(source.dtype, input.dtype)
        self._check_source(source.shape, self._target(input.shape, index.shape)[1])
        return input

    def _check_source(self, source: Shape, target: Shape) -> None:
        check_shape(at_least_1d(source), target)

    def _target(self, input: Shape, index: Shape) -> tuple[int, Shape]:
        """Return the axis, and the shape of all slices written."""
        axis = checked_axis(self.dim, len(input))
        if len(index) > 1:
            raise ShapeError("index must be a vector", found=format_shape(index))
        return axis, replaced(at_least_1d(input), axis, index[0] if index else 1)

    def _places(self, input: Array, index: Array, source: Array) -> tuple[Array, Array]:
        """Return positions in the flattened input, and their source elements."""
        self._spec(*specs_of((input, index, source)))
        axis, target = self._target(input.shape, index.shape)
        shape = np.atleast_1d(input).shape
        index = counted(index, shape[axis], self.counts_back)
        grid = list(np.ogrid[tuple(slice(size) for size in sizes(target))])
        grid[axis] = index.reshape(-1, *[1] * (len(shape) - 1 - axis))
        return flat_places(shape, grid), np.broadcast_to(source, sizes(target))


@register("torch.index_add", positional=("input", "dim", "index", "source", "alpha"))
class IndexAdd(_IndexWrite):
    """input[index[i]] += alpha * source[i] for every slice i along dim."""

    def infer(self, input: TensorSpec, index: TensorSpec, source: TensorSpec, alpha: Number = 1) -> TensorSpec:
        return self._spec(input, index, source)

    def forward(self, input: Array, index: Array, source: Array, alpha: Number = 1) -> Array:
        dtype = working_dtype(input.dtype)
        places, slices = self._places(input, index, source)
        return written(input, places, cast(slices, dtype) * cast(alpha, dtype), "add")


@register("aten::index_copy", positional=("input", "dim", "index", "source"))
class IndexCopy(_IndexWrite):
    """input[index[i]] = source[i] for every slice i along dim."""

    def infer(self, input: TensorSpec, index: TensorSpec, source: TensorSpec) -> TensorSpec:
        return self._spec(input, index, source)

    def forward(self, input: Array, index: Array, source: Array) -> Array:
        places, slices = self._places(input, index, source)
        return written(input, places, slices, None)


@register("aten::index_fill", positional=("input", "dim", "index", "source"))
class IndexFill(_IndexWrite):
    """One number in every slice along dim at the indices; negative ones count from the end."""

    counts_back = True

    def infer(self, input: TensorSpec, index: TensorSpec, source: TensorSpec | Number) -> TensorSpec:
        known = source if isinstance(source, TensorSpec) else TensorSpec((), input.dtype)
        return self._spec(input, index, TensorSpec(known.shape, input.dtype))

    def forward(self, input: Array, index: Array, source: Array | Number) -> Array:
        places, slices = self._places(input, index, np.asarray(cast(source, input.dtype)))
        return written(input, places, slices, None)

    def _check_source(self, source: Shape, target: Shape) -> None:
        check_shape(source, ())


@register("aten::index_reduce", positional=("input", "dim", "index", "source", "reduce", "include_self"))
class IndexReduce(_IndexWrite):
    """Like index_add with the product, mean, largest or smallest of the elements of a slice."""

    reduce: str
    include_self: bool = True

    def __post_init__(self) -> None:
        if self.reduce == "sum":
            raise ParameterError("unknown reduce", found=self.reduce, expected="prod, mean, amax or amin")
        check_way(self.reduce)

    def infer(self, input: TensorSpec, index: TensorSpec, source: TensorSpec) -> TensorSpec:
        return self._spec(input, index, source)

    def forward(self, input: Array, index: Array, source: Array) -> Array:
        places, slices = self._places(input, index, source)
        return reduced(input, places, slices, self.reduce, self.include_self)


@register("aten::put", positional=("input", "index", "source", "accumulate"))
class Put(Layer):
    """source written, or added, at positions of the flattened input; negative ones count from the end."""

    accumulate: bool = False

    def infer(self, input: TensorSpec, index: TensorSpec, source: TensorSpec) -> TensorSpec:
        if None not in (index.size, source.size) and index.size != source.size:
            raise ShapeError("index and source differ in size", found=f"{index.size} and {source.size}")
        check_category(source.dtype, input.dtype)
        return input

    def forward(self, input: Array, index: Array, source: Array) -> Array:
        check_positions(index, input.size, -input.size)
        return written(input, index, source.reshape(index.shape), "add" if self.accumulate else None)
