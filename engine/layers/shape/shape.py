"""Operators that view the same elements, in the same order, in another shape.

Dimensions may be dynamic (None): a shape is inferred as far as the known ones allow.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import numpy as np

from engine.errors import ShapeError
from engine.layers.definition.layer import NO_ANNOTATIONS, Annotations, Layer
from engine.layers.definition.registry import register
from engine.layers.operands.axes import checked_axes, checked_axis, replaced, sizes
from engine.layers.operands.views import check_reach, strided
from engine.limits import show_shape
from engine.tensor import UNKNOWN, Array, Dim, Shape, TensorSpec, format_shape, product


class Rearrangement(Layer):
    """Base of layers that only move elements: they compute nothing."""

    does_arithmetic = False
    takes_sizes = True


class _Reshaping(Rearrangement):
    """Base of layers that give the elements another shape."""

    def infer(self, input: TensorSpec) -> TensorSpec:
        return TensorSpec(self._shape(input.shape), input.dtype)

    def forward(self, input: Array) -> Array:
        return input.reshape(sizes(self._shape(input.shape)))

    @abstractmethod
    def _shape(self, shape: Shape) -> Shape:
        """Return the new shape."""


@register("Tensor.reshape")
class Reshape(_Reshaping):
    """The elements of input, in row-major order, as a tensor of another shape.

    Parameters:
        shape: -1 is inferred from the number of elements. If the file annotates the result, two further spellings are
            accepted: 0 for the input's own dimension (ONNX), and several -1, which old converters write for every
            dimension that differed between two traces. All but one are determined by the annotation and by the
            input's leading and trailing dimensions.
        zero_copies: 0 always stands for the input's own dimension (ONNX).
    Raises:
        ShapeError: the numbers of elements differ, or more than one -1 remains.
    """

    shape: tuple[Dim, ...]
    zero_copies: bool = False
    annotations: Annotations = NO_ANNOTATIONS

    def _shape(self, shape: Shape) -> Shape:
        return _fitted(self.wanted(shape), shape)

    def wanted(self, input: Shape) -> Shape:
        """Return the shape as the file means it, with at most one -1."""
        shape, note = self.shape, self._announced()
        if 0 in shape and (self.zero_copies or (note is not None and product(input) != 0)):
            shape = tuple(_copied(dim, index, input) if dim == 0 else dim for index, dim in enumerate(shape))
        if note is None:
            return shape
        if shape.count(-1) > 1 and None in note:
            shape = _with_known_dims(shape, input, note)
        return shape

    def _announced(self) -> Shape | None:
        """Return the annotated shape of the result; None if there is none, or of another rank."""
        annotated = self.annotations.outputs[0] if self.annotations.outputs else None
        return annotated.shape if annotated is not None and annotated.rank == len(self.shape) else None


def _copied(dim: int, index: int, input: Shape) -> Dim:
    return input[index] if index < len(input) else dim


def _with_known_dims(shape: Shape, input: Shape, announced: Shape) -> Shape:
    """Return a shape with all but one -1 replaced: those before and after it by the input's own dimensions."""
    notes = zip(shape, announced, strict=True)
    shape = tuple(note if dim == -1 and note is not None else dim for dim, note in notes)
    places = [index for index, dim in enumerate(shape) if dim == -1]
    for nth in reversed(range(len(places))):
        front = places[nth - 1] + 1 if nth > 0 else 0
        back = places[nth + 1] if nth + 1 < len(places) else len(shape)
        candidate = _with_ends_of(input, shape, front, back)
        if candidate is not None:
            return candidate
    raise ShapeError("more than one dimension is unknown", found=format_shape(shape), expected="one -1 at most")


def _with_ends_of(input: Shape, shape: Shape, front: int, back: int) -> Shape | None:
    """Return ``shape`` with the input's leading and trailing dimensions; None if it contradicts them."""
    behind = len(shape) - back
    ends = (*input[:front], *input[len(input) - behind :])
    given = (*shape[:front], *shape[back:])
    if front + behind > len(input) or any(dim not in (-1, end) for dim, end in zip(given, ends, strict=True)):
        return None
    candidate = (*input[:front], *shape[front:back], *input[len(input) - behind :])
    total, rest = product(input), product(dim for dim in candidate if dim != -1)
    return candidate if total is None or rest is None or (rest and total % rest == 0) else None


def _fitted(shape: Shape, input: Shape) -> Shape:
    """Return the shape with its one free dimension inferred from the number of elements, if known."""
    if any(dim is not None and dim < -1 for dim in shape) or shape.count(-1) > 1:
        raise ShapeError("not a shape", found=format_shape(shape), expected="dimensions >= 0 and at most one -1")
    total = product(input)
    free = [index for index, dim in enumerate(shape) if dim is None or dim == -1]
    rest = math.prod(dim for dim in shape if dim is not None and dim != -1)
    if total is None or len(free) > 1:
        return tuple(None if dim == -1 else dim for dim in shape)
    fits = rest != 0 and total % rest == 0 if free else rest == total
    if not fits:
        raise ShapeError("the elements do not fit", found=f"{format_shape(input)} into {format_shape(shape)}")
    return replaced(shape, free[0], total // rest) if free else shape


@register("Tensor.reshape_as")
class ReshapeAs(Rearrangement):
    """input in the shape of other."""

    def infer(self, input: TensorSpec, other: TensorSpec) -> TensorSpec:
        return TensorSpec(_fitted(other.shape, input.shape), input.dtype)

    def forward(self, input: Array, other: Array) -> Array:
        return input.reshape(sizes(_fitted(other.shape, input.shape)))


@register("torch.flatten")
class Flatten(_Reshaping):
    """Dimensions start_dim to end_dim merged; a 0-dim tensor becomes a vector of one element."""

    start_dim: int = 0
    end_dim: int = -1

    def _shape(self, shape: Shape) -> Shape:
        start, end = checked_axis(self.start_dim, len(shape)), checked_axis(self.end_dim, len(shape))
        if start > end:
            raise ShapeError("start_dim comes after end_dim", found=f"{self.start_dim} and {self.end_dim}")
        return (*shape[:start], product(shape[start : end + 1]), *shape[end + 1 :])


@register("Tensor.unflatten")
class Unflatten(_Reshaping):
    """One dimension as several; one of them may be -1."""

    dim: int
    sizes: tuple[Dim, ...]

    def _shape(self, shape: Shape) -> Shape:
        axis = checked_axis(self.dim, len(shape))
        return replaced(shape, axis, *_fitted(self.sizes, shape[axis : axis + 1]))


@register("torch.squeeze")
class Squeeze(Rearrangement):
    """Dimensions of size 1 removed: all of them, or the given ones; given ones of other sizes stay."""

    dim: tuple[int, ...] | None = None

    def infer(self, input: TensorSpec) -> Any:
        axes = self.axes(input.rank)
        if any(input.shape[axis] is None for axis in axes):
            return UNKNOWN
        return TensorSpec(_without_ones(input.shape, axes), input.dtype)

    def forward(self, input: Array) -> Array:
        return input.reshape(sizes(_without_ones(input.shape, self.axes(input.ndim))))

    def axes(self, rank: int) -> tuple[int, ...]:
        """Return the axes that are removed if their size is 1."""
        axes = range(rank) if self.dim is None else checked_axes(self.dim, rank)
        return tuple(axis for axis in axes if axis < rank)


def _without_ones(shape: Shape, axes: tuple[int, ...]) -> Shape:
    return tuple(dim for axis, dim in enumerate(shape) if axis not in axes or dim != 1)


@register("torch.unsqueeze")
class Unsqueeze(_Reshaping):
    """A dimension of size 1 added at ``dim`` of the result; several if they are given as a list (ONNX)."""

    dim: tuple[int, ...]

    def _shape(self, shape: Shape) -> Shape:
        new = checked_axes(self.dim, len(shape) + len(self.dim))
        old = iter(shape)
        return tuple(1 if axis in new else next(old) for axis in range(len(shape) + len(new)))


@register("aten::atleast_3d", presets={"rank": 3})
class AtLeast(_Reshaping):
    """Leading dimensions of size 1 added up to ``rank``; the third comes last, as in PyTorch."""

    rank: int

    def _shape(self, shape: Shape) -> Shape:
        if len(shape) >= self.rank:
            return shape
        if self.rank == 3 and len(shape) > 0:
            return (*((1,) * (2 - len(shape))), *shape, 1)
        return (1,) * (self.rank - len(shape)) + shape


@register("torch.as_strided")
class AsStrided(Rearrangement):
    """out[i, j, ...] = flat[storage_offset + i * stride[0] + j * stride[1] + ...] of a contiguous input.

    For a view, strides count in the memory of its base tensor, which the graph passes instead
    (engine/graph/building/storage.py).
    """

    size: tuple[int, ...]
    stride: tuple[int, ...]
    storage_offset: int | None = None

    def infer(self, input: TensorSpec) -> TensorSpec:
        self._check(input.shape)
        return TensorSpec(self.size, input.dtype)

    def forward(self, input: Array) -> Array:
        return strided(np.ascontiguousarray(input).reshape(-1), self.size, self.stride, self.storage_offset or 0)

    def _check(self, shape: Shape) -> None:
        if any(step < 0 for step in self.stride):  # possible in numpy, but not in PyTorch
            found = f"{show_shape(self.size)} and {show_shape(self.stride)}"
            raise ShapeError("size and stride do not fit", found=found)
        check_reach(self.size, self.stride, self.storage_offset or 0, product(shape))
