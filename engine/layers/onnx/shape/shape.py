"""Shape operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.errors import ShapeError
from engine.ir.sizes import size_array, slice_length
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.onnx.operands.adapter import UnaryAdapter, shape_of
from engine.layers.onnx.operands.constants import needed, whole_numbers
from engine.layers.operands.axes import checked_axes, checked_order
from engine.layers.operands.precision import INT64
from engine.layers.shape.expand import Tile
from engine.layers.shape.permute import Permute
from engine.layers.shape.shape import Rearrangement, Reshape, Squeeze, Unsqueeze
from engine.limits import check_results
from engine.promotion import broadcast_shapes
from engine.tensor import UNKNOWN, Array, Dim, Shape, TensorSpec, format_shape, product

_LARGEST = 2**31 - 1


class _Rearranged(Rearrangement):
    """Base of operators computed by another layer once a list of numbers is known."""

    def layer_for(self, numbers: tuple[int, ...], rank: int) -> Layer:
        """Return that layer."""
        raise NotImplementedError

    def _infer(self, input: TensorSpec, numbers: Any, name: str) -> Any:
        known = whole_numbers(numbers, name)
        if known is not None:
            return self.layer_for(known, input.rank).infer(input)
        rank = self.rank_for(numbers.shape[0] if shape_of(numbers)[:1] else None, input.rank)
        return UNKNOWN if rank is None else TensorSpec((None,) * rank, input.dtype)

    def rank_for(self, count: int | None, rank: int) -> int | None:
        """Return the rank of the result for a count of numbers known only at run time."""
        return None

    def _run(self, input: Array, numbers: Any, name: str) -> Any:
        layer = self.layer_for(needed(whole_numbers(numbers, name), name), input.ndim)
        check_results(layer.infer(TensorSpec(input.shape, input.dtype)))
        return layer.forward(input)


@register("Reshape", positional=("input", "shape"))
class OnnxReshape(_Rearranged):
    """Elements in another shape: 0 keeps a dimension, unless allowzero, and -1 takes the rest."""

    allowzero: bool = False

    def infer(self, input: TensorSpec, shape: Any) -> Any:
        if 0 in (whole_numbers(shape, "shape") or ()) and self.allowzero:
            return TensorSpec(self._with_zeros(shape, product(input.shape)), input.dtype)
        return self._infer(input, self._kept(input.shape, shape), "shape")

    def forward(self, input: Array, shape: Any) -> Any:
        if 0 in (whole_numbers(shape, "shape") or ()) and self.allowzero:
            return input.reshape(self._with_zeros(shape, input.size))
        return self._run(input, self._kept(input.shape, shape), "shape")

    def _kept(self, own: Shape, shape: Any) -> Any:
        """Replace zeros by the input's sizes."""
        numbers = whole_numbers(shape, "shape")
        if numbers is None or 0 not in numbers:
            return shape
        sizes = [own[k] if number == 0 and k < len(own) else number for k, number in enumerate(numbers)]
        return shape if None in sizes else tuple(sizes)

    def rank_for(self, count: int | None, rank: int) -> int | None:
        return count

    def layer_for(self, numbers: tuple[int, ...], rank: int) -> Layer:
        if any(number < -1 for number in numbers) or numbers.count(-1) > 1:
            raise ShapeError("not a shape", found=list(numbers), expected="dimensions >= 0 and at most one -1")
        return Reshape(shape=numbers)

    def _with_zeros(self, shape: Any, count: Dim) -> tuple[int, ...]:
        numbers = whole_numbers(shape, "shape") or ()
        if any(number < 0 for number in numbers) or count not in (0, None):
            raise ShapeError("the elements do not fit", found=count, expected=format_shape(numbers))
        return numbers


@register("Squeeze", positional=("input", "axes"))
class OnnxSqueeze(Rearrangement):
    """Removal of axes of size 1: the given ones, or all."""

    def infer(self, input: TensorSpec, axes: Any = None) -> Any:
        known = None if axes is None else whole_numbers(axes, "axes")
        if axes is not None and known is None:
            return UNKNOWN
        return self._layer(known, input).infer(input)

    def forward(self, input: Array, axes: Any = None) -> Any:
        known = None if axes is None else needed(whole_numbers(axes, "axes"), "axes")
        return self._layer(known, TensorSpec(input.shape, input.dtype)).forward(input)

    def _layer(self, axes: tuple[int, ...] | None, input: TensorSpec) -> Layer:
        if axes is None:
            return Squeeze()
        for axis in checked_axes(axes, input.rank):
            if input.rank and input.shape[axis] not in (None, 1):
                raise ShapeError("an axis to leave out is not of size 1", found=format_shape(input.shape), expected=1)
        return Squeeze(dim=axes)


@register("Unsqueeze", positional=("input", "axes"))
class OnnxUnsqueeze(_Rearranged):
    """Insertion of axes of size 1 at positions of the result."""

    def infer(self, input: TensorSpec, axes: Any) -> Any:
        return self._infer(input, axes, "axes")

    def forward(self, input: Array, axes: Any) -> Any:
        return self._run(input, axes, "axes")

    def rank_for(self, count: int | None, rank: int) -> int | None:
        return None if count is None else rank + count

    def layer_for(self, numbers: tuple[int, ...], rank: int) -> Layer:
        return Unsqueeze(dim=numbers)


@register("Flatten")
class OnnxFlatten(Rearrangement):
    """Matrix of the axes before ``axis`` and those from it on."""

    axis: int = 1

    def infer(self, input: TensorSpec) -> TensorSpec:
        axis = self._axis(input.rank)
        return TensorSpec((product(input.shape[:axis]), product(input.shape[axis:])), input.dtype)

    def forward(self, input: Array) -> Array:
        return input.reshape(self.infer(TensorSpec(input.shape, input.dtype)).sizes)

    def _axis(self, rank: int) -> int:
        if not -rank <= self.axis <= rank:
            raise ShapeError("axis is out of range", found=self.axis, expected=f"{-rank} to {rank}")
        return self.axis + rank if self.axis < 0 else self.axis


@register("Transpose")
class OnnxTranspose(UnaryAdapter):
    """Permutation of the axes; reversed by default."""

    canonical_layers = (Permute,)

    perm: tuple[int, ...] | None = None

    def canonical(self, input: TensorSpec) -> Layer:
        order = tuple(range(input.rank))[::-1] if self.perm is None else checked_order(self.perm, input.rank)
        return Permute(dims=order)


@register("Expand", positional=("input", "shape"))
class OnnxExpand(Rearrangement):
    """Input broadcast to a shape, in both directions."""

    def infer(self, input: Any, shape: Any) -> Any:
        numbers = whole_numbers(shape, "shape")
        if not isinstance(input, TensorSpec):
            return UNKNOWN
        if numbers is None:
            count = shape_of(shape)[0] if len(shape_of(shape)) == 1 else None
            return UNKNOWN if count is None else TensorSpec((None,) * max(count, input.rank), input.dtype)
        return TensorSpec(broadcast_shapes(input.shape, checked_sizes(numbers)), input.dtype)

    def forward(self, input: Array, shape: Any) -> Array:
        numbers = needed(whole_numbers(shape, "shape"), "shape")
        spec = self.infer(TensorSpec(input.shape, input.dtype), checked_sizes(numbers))
        check_results(spec)
        return np.broadcast_to(input, spec.sizes)


@register("Tile", positional=("input", "repeats"))
class OnnxTile(_Rearranged):
    """Repetition of the tensor along each axis."""

    def infer(self, input: TensorSpec, repeats: Any) -> Any:
        return self._infer(input, repeats, "repeats")

    def forward(self, input: Array, repeats: Any) -> Any:
        return self._run(input, repeats, "repeats")

    def rank_for(self, count: int | None, rank: int) -> int | None:
        return rank

    def layer_for(self, numbers: tuple[int, ...], rank: int) -> Layer:
        if len(numbers) != rank:
            raise ShapeError("repeats do not fit", found=list(numbers), expected=f"{rank} numbers")
        return Tile(dims=numbers)


def checked_sizes(numbers: tuple[int, ...]) -> tuple[int, ...]:
    if any(number < 0 for number in numbers):
        raise ShapeError("not a shape", found=list(numbers), expected="sizes of 0 and more")
    return numbers


@register("Slice", positional=("input", "starts", "ends", "axes", "steps"))
class OnnxSlice(Rearrangement):
    """input[starts:ends:steps] of the given axes, or of the first ones; a negative step goes backwards.

    The converter writes 2147483647 for "to the end" and -2147483648 for "past the beginning".
    """

    def infer(self, input: TensorSpec, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
        named = self._bounds(input.rank, starts, ends, axes, steps)
        if named is None:
            return TensorSpec((None,) * input.rank, input.dtype)
        shape: list[Dim] = list(input.shape)
        for axis, piece in named.items():
            length = shape[axis]
            shape[axis] = None if length is None else slice_length(piece, length)
        return TensorSpec(tuple(shape), input.dtype)

    def forward(self, input: Array, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Array:
        named = needed(self._bounds(input.ndim, starts, ends, axes, steps), "starts")
        return input[(*(named.get(axis, slice(None)) for axis in range(input.ndim)), ...)]

    def _bounds(self, rank: int, *lists: Any) -> dict[int, slice] | None:
        starts, ends, axes, steps = (
            None if each is None else whole_numbers(each, name)
            for each, name in zip(lists, ("starts", "ends", "axes", "steps"), strict=True)
        )
        if any(
            given is not None and known is None for given, known in zip(lists, (starts, ends, axes, steps), strict=True)
        ):
            return None
        starts, ends = needed(starts, "starts"), needed(ends, "ends")
        count = len(starts)
        places = tuple(range(min(count, rank))) if axes is None else checked_axes(axes, rank)
        steps = steps if steps is not None else (1,) * count
        if not len(starts) == len(ends) == len(places) == len(steps) or 0 in steps:
            found = f"starts {list(starts)}, ends {list(ends)}, steps {list(steps)}"
            raise ShapeError("bounds do not fit", found=found, expected="as many of each, steps not 0")
        rows = zip(places, starts, ends, steps, strict=True)
        return {axis: _piece(start, end, step) for axis, start, end, step in rows}


def _piece(start: int, end: int, step: int) -> slice:
    return slice(start, None if step < 0 and end <= -_LARGEST else end, step)


@register("Shape")
class OnnxShape(Layer):
    """Sizes of the axes from ``start`` up to ``end``."""

    does_arithmetic = False

    start: int = 0
    end: int | None = None

    def infer(self, input: TensorSpec) -> TensorSpec:
        sizes = input.shape[self.start : self.end]
        return TensorSpec((len(sizes),), INT64, None if None in sizes else size_array(sizes))

    def forward(self, input: Array) -> Array:
        return np.array(input.shape[self.start : self.end], INT64)


@register("Size")
class OnnxSize(Layer):
    """Number of elements."""

    def infer(self, input: TensorSpec) -> TensorSpec:
        size = input.size
        return TensorSpec((), INT64, None if size is None else size_array(size))

    def forward(self, input: Array) -> Array:
        return np.asarray(input.size, INT64)
