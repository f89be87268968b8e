"""Operators that repeat elements."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.definition.overload import overload
from engine.layers.definition.registry import register
from engine.layers.operands.axes import checked_axis, replaced, sizes
from engine.layers.shape.shape import Rearrangement
from engine.limits import check_size
from engine.promotion import broadcast_shapes
from engine.tensor import UNKNOWN, Array, Dim, Shape, TensorSpec, format_shape, product


@register("Tensor.expand", renamed={"size": "sizes"})
class Expand(Rearrangement):
    """Dimensions of size 1 repeated up to sizes, new ones added in front; -1 keeps a dimension.

    Parameters:
        both_ways: a size of 1, or none, keeps a dimension too (ONNX).
    Raises:
        ShapeError: a dimension of another size than 1 would change.
    """

    sizes: tuple[Dim, ...]
    implicit: bool = False
    both_ways: bool = False

    def infer(self, input: TensorSpec) -> TensorSpec:
        return TensorSpec(self._shape(input.shape), input.dtype)

    def forward(self, input: Array) -> Array:
        shape = sizes(self._shape(input.shape))
        check_size(shape, input.dtype)
        return np.broadcast_to(input, shape)

    def _shape(self, shape: Shape) -> Shape:
        if not self.both_ways:
            return _expanded(shape, self.sizes)
        if any(size is not None and size < 0 for size in self.sizes):
            raise ShapeError("not a shape", found=format_shape(self.sizes), expected="sizes of 0 and more")
        return broadcast_shapes(shape, self.sizes)


@register("Tensor.expand_as")
class ExpandAs(Rearrangement):
    """input expanded to the shape of other."""

    def infer(self, input: TensorSpec, other: TensorSpec) -> TensorSpec:
        return TensorSpec(_expanded(input.shape, other.shape), input.dtype)

    def forward(self, input: Array, other: Array) -> Array:
        return np.broadcast_to(input, sizes(_expanded(input.shape, other.shape)))


@register("aten::broadcast_tensors")
class BroadcastTensors(Rearrangement):
    """Each tensor expanded to the common shape of all.

    Raises:
        ShapeError: there is no common shape.
    """

    def infer(self, tensors: Any) -> Any:
        if not all(isinstance(tensor, TensorSpec) for tensor in tensors):
            return UNKNOWN
        shape = broadcast_shapes(*[tensor.shape for tensor in tensors])
        return [TensorSpec(shape, tensor.dtype) for tensor in tensors]

    def forward(self, tensors: Sequence[Array]) -> list[Array]:
        shape = broadcast_shapes(*[tensor.shape for tensor in tensors])
        return [np.broadcast_to(tensor, sizes(shape)) for tensor in tensors]


def _expanded(shape: Shape, sizes: Shape) -> Shape:
    lead = len(sizes) - len(shape)
    if lead < 0 or any(dim is not None and dim < 0 for dim in sizes[:lead]):
        raise ShapeError("cannot expand", found=format_shape(shape), expected=format_shape(sizes))
    return sizes[:lead] + tuple(_grown(dim, size) for dim, size in zip(shape, sizes[lead:], strict=True))


def _grown(dim: Dim, size: Dim) -> Dim:
    if size == -1 or size == dim:
        return dim
    if dim is None or size is None:
        return size if dim is None else None if dim == 1 else dim
    if dim != 1 or size < 0:
        raise ShapeError("only a dimension of size 1 can be expanded", found=dim, expected=f"1 or {size}")
    return size


class _Tiling(Rearrangement):
    """Base of layers that repeat the whole tensor."""

    def infer(self, input: TensorSpec) -> TensorSpec:
        return TensorSpec(_tiled(input.shape, self._counts(input.rank)), input.dtype)

    def forward(self, input: Array) -> Array:
        counts = self._counts(input.ndim)
        return np.tile(input, sizes(counts))

    @abstractmethod
    def _counts(self, rank: int) -> Shape:
        """Return the number of repetitions along each axis of the result, for an input of this rank."""


@register("Tensor.repeat", renamed={"repeats": "sizes"})
class Repeat(_Tiling):
    """The whole tensor repeated sizes[i] times along axis i; new axes are added in front."""

    sizes: tuple[Dim, ...]

    def _counts(self, rank: int) -> Shape:
        if len(self.sizes) < rank:
            raise ShapeError("too few repeats", found=len(self.sizes), expected=f"one for each of {rank} dimensions")
        return self.sizes


@register("torch.tile")
class Tile(_Tiling):
    """Like repeat; missing leading counts are 1."""

    dims: tuple[Dim, ...]

    def _counts(self, rank: int) -> Shape:
        return (1,) * (rank - len(self.dims)) + self.dims


def _tiled(shape: Shape, counts: Shape) -> Shape:
    if any(count is not None and count < 0 for count in counts):
        raise ShapeError("repeats must not be negative", found=format_shape(counts))
    padded = (1,) * (len(counts) - len(shape)) + shape
    return tuple(product(pair) for pair in zip(padded, counts, strict=True))


@register("torch.repeat_interleave")
class RepeatInterleave(Rearrangement):
    """Every slice along dim repeated in place: repeats is a number, or one number for each slice.

    Without dim the elements are flattened. output_size only announces the result's size.
    """

    dim: int | None = None
    output_size: int | None = None

    def infer(self, input: TensorSpec, repeats: TensorSpec | int) -> TensorSpec:
        shape, axis = self._slices(input.shape)
        if isinstance(repeats, TensorSpec):
            _check_counts(repeats.shape, shape[axis])
            return TensorSpec(replaced(shape, axis, _total(repeats, shape[axis])), input.dtype)
        if not isinstance(repeats, int):
            raise ParameterError("repeats must be an integer", found=repr(repeats)[:40])
        if repeats < 0:
            raise ParameterError("repeats must not be negative", found=repeats)
        return TensorSpec(replaced(shape, axis, product((shape[axis], repeats))), input.dtype)

    def forward(self, input: Array, repeats: Array | int) -> Array:
        shape, axis = self._slices(input.shape)
        counts = np.asarray(repeats)
        if counts.dtype.kind not in "biu":
            raise ShapeError("repeats must be integers", found=counts.dtype.name)
        if counts.size and counts.min() < 0:
            raise ShapeError("repeats must not be negative", found=int(counts.min()))
        each = (shape[axis] or 0) if counts.size == 1 else 1  # one count holds for every slice
        check_size(replaced(shape, axis, each * sum(map(int, counts.flat))), input.dtype)
        return np.repeat(input.reshape(sizes(shape)), counts.astype(np.int64), axis)  # numpy does not accept uint64

    def _slices(self, shape: Shape) -> tuple[Shape, int]:
        if self.dim is None or not shape:
            return (product(shape),), checked_axis(self.dim or 0, 1)
        return shape, checked_axis(self.dim, len(shape))


def _check_counts(counts: Shape, slices: Dim) -> None:
    known = counts and None not in (counts[0], slices)
    if len(counts) > 1 or (known and counts[0] not in (1, slices)):
        raise ShapeError("repeats do not fit", found=format_shape(counts), expected=f"a number or [{slices}]")


def _total(repeats: TensorSpec, slices: Dim) -> Dim:
    """Return the number of slices of the result, if the numbers of repetitions are known."""
    if repeats.value is None or repeats.dtype.kind not in "iu" or (repeats.value < 0).any():
        return None
    return product((slices, int(repeats.value.item()))) if repeats.size == 1 else sum(map(int, repeats.value))


class Repetitions(Rearrangement):
    """i repeated repeats[i] times, for every index i of repeats."""

    output_size: int | None = None

    def infer(self, repeats: TensorSpec) -> TensorSpec:
        return TensorSpec((None,), np.dtype(np.int64))

    def forward(self, repeats: Array) -> Array:
        if repeats.ndim != 1:
            raise ShapeError("repeats must be a vector", found=format_shape(repeats.shape))
        return RepeatInterleave(dim=0).forward(np.arange(len(repeats)), repeats)


overload(
    "aten::repeat_interleave", (Repetitions, "repeats output_size"), (RepeatInterleave, "input repeats dim output_size")
)
