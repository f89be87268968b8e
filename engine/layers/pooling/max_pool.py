"""Maximum pooling with windows, and the positions of maxima for all maximum pools."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from engine.layers.convolution.window import Window, each_tap, pad
from engine.layers.definition.layer import NO_ANNOTATIONS, Annotations, Layer
from engine.layers.definition.registry import register_ranks
from engine.layers.operands.bounds import extremes
from engine.layers.operands.precision import working_dtype
from engine.layers.operands.spatial import Operand, of_last_axes
from engine.layers.pooling.pool import PaddedPool, over_windows
from engine.layers.quantised.quantised import Quantised, integers
from engine.limits import check_steps
from engine.promotion import cast
from engine.tensor import Array, DType, TensorSpec

INDEX: Final[DType] = np.dtype(np.int64)


class WithIndices(Layer):
    """Base of maximum pools, whose second result is the position of the maximum.

    The file decides the results: two outputs are values and indices; a single one annotated as int64 is the indices
    alone (the converter then prints ``return_indices=False``); a single one without annotation is a tuple of both if
    return_indices is true.
    """

    return_indices: bool = False
    annotations: Annotations = NO_ANNOTATIONS

    @property
    def returns(self) -> slice | int:
        """Index of the returned items in the pair (values, indices)."""
        outputs, inputs = self.annotations.outputs, self.annotations.inputs
        if len(outputs) == 2 or (self.return_indices and outputs[0] is None):
            return slice(None)
        is_index = outputs[0] is not None and outputs[0].dtype == INDEX
        return int(is_index and not (inputs and inputs[0] is not None and inputs[0].dtype == INDEX))


@register_ranks("F.max_pool{}d")
class MaxPool(PaddedPool, WithIndices):
    """The largest element of each window, NaN if there is one.

    Shapes:
        input (N, C, *S) or (C, *S)  ->  values and indices, both (N, C, *T) or (C, *T)
        T = (S + 2*padding - dilation*(kernel - 1) - 1) // stride + 1; ceil_mode rounds up, and drops a last window
        that would start after the input and the padding before it.
    Dtypes:
        floating and integer; indices are int64, into the flattened spatial axes of the input; into the whole tensor,
        as in ONNX, if indexes_whole, or the dilation is missing: the converter's mark of ONNX files.
    Source:
        torch.nn.MaxPool2d, torch.nn.functional.max_pool2d.
    """

    dilation: tuple[int, ...] = ()
    indexes_whole: bool = False

    @property
    def counts_in_whole(self) -> bool:
        """Return whether indices count in the whole tensor."""
        return self.indexes_whole or not self.dilation

    def infer(self, input: Operand) -> Any:
        spec = self.pooled(input)
        if self.returns != 0:  # positions of maxima are found tap by tap
            check_steps(math.prod(window.kernel for window in self.windows), "taps in a window")
        return (spec, TensorSpec(spec.shape, INDEX))[self.returns]

    def forward(self, input: Array) -> Any:
        x = cast(integers(input), working_dtype(input.dtype))
        windows = self.windows_on(x.shape[-self.spatial_rank :])
        if self.returns == 0:
            values = cast(maxima(x, windows), input.dtype)
            return input.like(values) if isinstance(input, Quantised) else values
        values, indices = maxima_with_indices(x, windows)
        indices = in_whole(indices, input.shape, self.spatial_rank) if self.counts_in_whole else indices
        return (cast(values, input.dtype), indices)[self.returns]


def in_whole(indices: Array, shape: Sequence[int], spatial_rank: int) -> Array:
    """Return positions in the last axes as positions in the whole tensor of a shape."""
    lead, sizes = shape[:-spatial_rank], shape[-spatial_rank:]
    images = flat_index([np.arange(size) for size in lead], lead)
    return np.asarray(indices + images.reshape(*images.shape, *(1,) * spatial_rank) * math.prod(sizes))


def maxima(x: Array, windows: Sequence[Window]) -> Array:
    """Return the largest element of each window."""
    return over_windows(np.maximum, x, windows, extremes(x.dtype)[0])


def maxima_with_indices(x: Array, windows: Sequence[Window]) -> tuple[Array, Array]:
    """Return the largest element of each window and its flat index on the last axes: the first, or the last NaN."""
    sizes = x.shape[-len(windows) :]
    starts = [window.starts(size) for window, size in zip(windows, sizes, strict=True)]
    # PyTorch begins with the first tap that is not padding: it counts when nothing exceeds the lowest value.
    skipped = [np.maximum(-(start // window.dilation), 0) for start, window in zip(starts, windows, strict=True)]
    first = flat_index([s + k * w.dilation for s, k, w in zip(starts, skipped, windows, strict=True)], sizes)
    lowest = extremes(x.dtype)[0]
    padded = pad(x, windows, lowest)
    values = np.full((*x.shape[: -len(windows)], *first.shape), lowest, x.dtype)
    indices = np.broadcast_to(first, values.shape).copy()
    for tap, places in each_tap(windows, first.shape):
        element = padded[of_last_axes(*places)]
        better = (element > values) | (element != element)
        index = flat_index([s + k * w.dilation for s, k, w in zip(starts, tap, windows, strict=True)], sizes)
        np.copyto(values, element, where=better)
        np.copyto(indices, index, where=better)
    return values, indices


def flat_index(positions: Sequence[Array], sizes: Sequence[int]) -> Array:
    """Return one index into the flattened axes for every combination of positions on the axes."""
    flat = np.zeros((), np.int64)
    for position, size in zip(positions, sizes, strict=True):
        flat = flat[..., None] * size + position
    return flat
