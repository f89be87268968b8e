"""Pooling to a given size: window i of O on an axis of L elements is [floor(i*L/O), ceil((i+1)*L/O))."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from engine.cancellation import cancellable
from engine.errors import ParameterError, ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register_ranks
from engine.layers.operands.precision import working_dtype
from engine.layers.operands.spatial import FLOATING, Operand, image
from engine.layers.pooling.max_pool import INDEX, WithIndices
from engine.promotion import cast
from engine.tensor import Array, Dim, Shape, TensorSpec, format_shape

# Number of arrays of an axis's size that exist at once.
_AT_ONCE: Final = 4


class AdaptivePool(Layer):
    """Base of pools with a given output size.

    Parameters:
        output_size: one number an axis; 0, which is how the converter writes None, keeps the input's size.
    """

    loops = True

    spatial_rank: int
    output_size: tuple[Dim, ...]

    def __post_init__(self) -> None:
        lengths = {1, self.spatial_rank}
        if len(self.output_size) not in lengths or any(size is not None and size < 0 for size in self.output_size):
            expected = f"{self.spatial_rank} sizes, or 0 to keep the input's"
            raise ParameterError("output_size does not fit", found=list(self.output_size), expected=expected)

    def pooled(self, input: Operand) -> TensorSpec:
        """Return the spec of an input after pooling.

        Raises:
            ShapeError: when its rank or dtype is wrong, or an axis is empty.
        """
        spec = image(input, self.spatial_rank, FLOATING)
        sizes = spec.shape[-self.spatial_rank :]
        if 0 in sizes:
            raise ShapeError("a spatial axis is empty", found=format_shape(spec.shape))
        return TensorSpec((*spec.shape[: -self.spatial_rank], *self.output_sizes(sizes)), spec.dtype)

    def output_sizes(self, sizes: Shape) -> Shape:
        """Return the spatial sizes of the result."""
        wanted = self.output_size * self.spatial_rank if len(self.output_size) == 1 else self.output_size
        return tuple(size if want == 0 else want for want, size in zip(wanted, sizes, strict=True))

    def segments(self, input: Array) -> list[tuple[Array, Array]]:
        """Return (starts, ends) of the windows on each spatial axis."""
        sizes = input.shape[-self.spatial_rank :]
        return [segments(size, count or 0) for size, count in zip(sizes, self.output_sizes(sizes), strict=True)]

    def axes(self, input: Array) -> list[tuple[int, tuple[Array, Array]]]:
        """Return each spatial axis with its windows, shrinking ones first, so that intermediate results stay small."""
        axes = enumerate(self.segments(input), start=input.ndim - self.spatial_rank)
        return sorted(axes, key=lambda each: len(each[1][0]) / input.shape[each[0]])

    def scratch_bytes(self, output: Any, *operands: object) -> int:
        """Return the bytes of a step along an axis: its input, an element of each window, and their sum."""
        values = output[0] if isinstance(output, tuple) else output
        specs = [spec for spec in (values, *operands[:1]) if isinstance(spec, TensorSpec)]
        return _AT_ONCE * max((spec.size or 0) * working_dtype(spec.dtype).itemsize for spec in specs)

    def flops(self, output: Any, *operands: object) -> int:
        """Return one operation for each element of the input."""
        return (operands[0].size or 0) if isinstance(operands[0], TensorSpec) else 0


def segments(size: int, count: int) -> tuple[Array, Array]:
    """Return starts and ends of ``count`` windows that cover an axis."""
    i = np.arange(count)
    return i * size // max(count, 1), -(-(i + 1) * size // max(count, 1))


@register_ranks("F.adaptive_avg_pool{}d")
class AdaptiveAvgPool(AdaptivePool):
    """The mean of each window.

    Shapes:
        input (N, C, *S) or (C, *S)  ->  (N, C, *output_size) or (C, *output_size)
    Dtypes:
        floating.
    Source:
        torch.nn.AdaptiveAvgPool2d, torch.nn.functional.adaptive_avg_pool2d.
    """

    def infer(self, input: Operand) -> TensorSpec:
        return self.pooled(input)

    def forward(self, input: Array) -> Array:
        x = cast(input, working_dtype(input.dtype))
        with np.errstate(all="ignore"):
            for axis, (starts, ends) in self.axes(input):
                lengths = _along(ends - starts, axis, x.ndim).astype(x.dtype)
                x = _over_segments(np.add, x, axis, starts, ends) / lengths
        return cast(x, input.dtype)


def _along(values: Array, axis: int, rank: int) -> Array:
    """Return a vector shaped to broadcast along an axis."""
    return values.reshape(-1, *(1,) * (rank - 1 - axis))


@register_ranks("F.adaptive_max_pool{}d")
class AdaptiveMaxPool(AdaptivePool, WithIndices):
    """The largest element of each window, NaN if there is one, and its position.

    Shapes:
        input (N, C, *S) or (C, *S)  ->  values and indices, both (N, C, *output_size) or (C, *output_size)
    Dtypes:
        floating; indices are int64, into the flattened spatial axes of the input.
    Source:
        torch.nn.AdaptiveMaxPool2d, torch.nn.functional.adaptive_max_pool2d.
    """

    def infer(self, input: Operand) -> Any:
        spec = self.pooled(input)
        return (spec, TensorSpec(spec.shape, INDEX))[self.returns]

    def forward(self, input: Array) -> Any:
        x, segments = cast(input, working_dtype(input.dtype)), self.segments(input)
        if self.returns == 0:
            for axis, (starts, ends) in self.axes(input):
                x = _over_segments(np.maximum, x, axis, starts, ends)
            return cast(x, input.dtype)
        values, indices = _maxima(x, segments)
        return (cast(values, input.dtype), indices)[self.returns]


def _over_segments(combine: np.ufunc, x: Array, axis: int, starts: Array, ends: Array) -> Array:
    """Return the reduction of each segment of an axis."""
    if _are_few(starts, ends):
        return _each(x, axis, starts, ends, lambda segment: np.asarray(combine.reduce(segment, axis)))
    result = x.take(starts, axis)
    for step in cancellable(range(1, int((ends - starts).max(initial=0)))):
        element = x.take(np.minimum(starts + step, ends - 1), axis)
        result = np.where(_along(ends - starts > step, axis, x.ndim), combine(result, element), result)
    return result


def _maxima(x: Array, segments: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Return the largest element of each window and its flat index: the first of several, the last NaN.

    Computed an axis at a time, the last one first: rows are compared by their largest elements, an earlier row taking
    precedence, so that the first in the window is found.
    """
    rank = len(segments)
    sizes = x.shape[-rank:]
    indices = np.broadcast_to(np.arange(math.prod(sizes)).reshape(sizes), x.shape)
    for axis, (starts, ends) in reversed(list(enumerate(segments, start=x.ndim - rank))):
        x, indices = _largest(x, indices, axis, starts, ends)
    return x, indices


def _largest(x: Array, indices: Array, axis: int, starts: Array, ends: Array) -> tuple[Array, Array]:
    """Return the largest element of each segment of an axis, and the entry of ``indices`` at its position."""
    if _are_few(starts, ends):
        places = _each(x, axis, starts, ends, lambda segment: _place(segment, axis)) + _along(starts, axis, x.ndim)
        return np.take_along_axis(x, places, axis), np.take_along_axis(indices, places, axis)
    values, found = x.take(starts, axis), indices.take(starts, axis)
    for step in cancellable(range(1, int((ends - starts).max(initial=0)))):
        # A segment shorter than the longest repeats its last element, which changes nothing.
        places = np.minimum(starts + step, ends - 1)
        element = x.take(places, axis)
        better = (element > values) | (element != element)
        np.copyto(values, element, where=better)
        np.copyto(found, indices.take(places, axis), where=better)
    return values, found


def _are_few(starts: Array, ends: Array) -> bool:
    """Return whether there are fewer segments than elements in the longest, to loop in Python over the fewer."""
    return len(starts) < int((ends - starts).max(initial=0))


def _each(x: Array, axis: int, starts: Array, ends: Array, reduced: Callable[[Array], Array]) -> Array:
    """Return a reduction of each segment of an axis, stacked on it."""
    pairs = cancellable(zip(starts.tolist(), ends.tolist(), strict=True))
    lead = (slice(None),) * axis
    return np.stack([reduced(x[(*lead, slice(start, end))]) for start, end in pairs], axis)


def _place(x: Array, axis: int) -> Array:
    """Return the position of the largest element on an axis: the first of several, the last NaN."""
    places, is_nan = x.argmax(axis), x != x
    last = x.shape[axis] - 1 - np.flip(is_nan, axis).argmax(axis)
    return np.asarray(np.where(is_nan.any(axis), last, places))
