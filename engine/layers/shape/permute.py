"""Operators that reorder elements along axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.definition.composite import CallLayer, Composite
from engine.layers.definition.registry import register
from engine.layers.elementwise.complex import Conjugate
from engine.layers.operands.axes import checked_axes, checked_axis, checked_order
from engine.layers.shape.shape import Rearrangement
from engine.tensor import Array, TensorSpec


class _Permutation(Rearrangement):
    """Base of layers that reorder the axes."""

    def infer(self, input: TensorSpec) -> TensorSpec:
        return TensorSpec(tuple(input.shape[axis] for axis in self.order(input.rank)), input.dtype)

    def forward(self, input: Array) -> Array:
        return input.transpose(self.order(input.ndim))

    def order(self, rank: int) -> tuple[int, ...]:
        """Return the input's axis at each place of the result."""
        raise NotImplementedError


@register("torch.permute")
class Permute(_Permutation):
    """Axis i of the result is axis dims[i] of the input."""

    dims: tuple[int, ...]

    def order(self, rank: int) -> tuple[int, ...]:
        return checked_order(self.dims, rank)


@register("torch.transpose")
class Transpose(_Permutation):
    """Axes dim0 and dim1 swapped."""

    dim0: int
    dim1: int

    def order(self, rank: int) -> tuple[int, ...]:
        if rank < 2 and (self.dim0, self.dim1) == (-2, -1):
            raise ShapeError("a matrix is needed", found=f"{rank} dimensions", expected="at least 2")
        first, second = checked_axis(self.dim0, rank), checked_axis(self.dim1, rank)
        swapped = {first: second, second: first}
        return tuple(swapped.get(axis, axis) for axis in range(rank))


@register("torch.t", presets={"most": 2}, formula="the transpose of a matrix; vectors and 0-dim tensors are unchanged")
@register("aten::numpy_T", presets={"most": None}, formula="all axes in reverse order")  # fmt: skip
class Reversal(_Permutation):
    """All axes in reverse order.

    Parameters:
        most: the largest number of dimensions.
    """

    most: int | None

    def order(self, rank: int) -> tuple[int, ...]:
        if self.most is not None and rank > self.most:
            raise ShapeError("only matrices can be transposed with t()", found=f"{rank} dimensions", expected="2")
        return tuple(reversed(range(rank)))


@register("aten::mH")
class Adjoint(Composite):
    """The last two axes swapped and every element conjugated."""

    def compose(self, call: CallLayer, input: Array) -> Any:
        return call(Conjugate(), call(Transpose(dim0=-2, dim1=-1), input))


@register("aten::movedim", positional=("input", "source", "destination"))
class MoveDim(_Permutation):
    """Axis source[i] moves to position destination[i]; the others keep their order."""

    source: tuple[int, ...]
    destination: tuple[int, ...]

    def order(self, rank: int) -> tuple[int, ...]:
        source, destination = checked_axes(self.source, rank), checked_axes(self.destination, rank)
        if len(source) != len(destination):
            raise ShapeError("source and destination differ in length", found=f"{len(source)} and {len(destination)}")
        moved = dict(zip(destination, source, strict=True))
        rest = iter(axis for axis in range(rank) if axis not in source)
        return tuple(moved[axis] if axis in moved else next(rest) for axis in range(rank))


class _Mirror(Rearrangement):
    """Base of layers whose output has the input's shape."""

    def infer(self, input: TensorSpec) -> TensorSpec:
        self.axes(input.rank)
        return input

    def axes(self, rank: int) -> tuple[int, ...]:
        """Return the axes whose elements move, counted from 0."""
        raise NotImplementedError


@register("torch.flip")
class Flip(_Mirror):
    """Elements in reverse order along dims."""

    dims: tuple[int, ...]

    def forward(self, input: Array) -> Array:
        axes = self.axes(input.ndim)
        return np.flip(input, axes) if axes else input

    def axes(self, rank: int) -> tuple[int, ...]:
        return checked_axes(self.dims, rank) if rank else ()


@register("torch.roll")
class Roll(_Mirror):
    """Elements shifted along dims, with wrap-around.

    Without dims the flattened elements are shifted.
    """

    shifts: tuple[int, ...]
    dims: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if len(self.shifts) != len(self.dims or (0,)):
            raise ParameterError(
                "shifts and dims differ in length", found=len(self.shifts), expected=len(self.dims or (0,))
            )

    def forward(self, input: Array) -> Array:
        axes = self.axes(input.ndim)
        return np.roll(input, self.shifts, axes) if axes else np.roll(input, self.shifts[0])

    def axes(self, rank: int) -> tuple[int, ...]:
        if self.dims and not rank:
            raise ShapeError("a 0-dim tensor has no dimension to roll", found=list(self.dims))
        return tuple(checked_axis(dim, rank) for dim in self.dims or ())


@register("aten::rot90")
class Rot90(Composite):
    """A plane rotated by k quarter turns, from the first of dims towards the second."""

    k: int = 1
    dims: tuple[int, ...] = (0, 1)

    def compose(self, call: CallLayer, input: Array) -> Any:
        axes = checked_axes(self.dims, len(input.shape))
        if len(axes) != 2:
            raise ShapeError("a rotation needs a plane", found=list(self.dims), expected="two dims")
        turns = self.k % 4
        mirrored = call(Flip(dims=((), axes[1:], axes, axes[:1])[turns]), input)
        return call(Transpose(dim0=axes[0], dim1=axes[1]), mirrored) if turns % 2 else mirrored
