"""Pooling with windows: average and power average, and the common base of all pools."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, Final

import numpy as np

from engine.cancellation import cancellable
from engine.errors import ParameterError
from engine.layers.convolution.window import (
    Window,
    check_padded,
    check_taps,
    counts,
    pad,
    same_pairs,
    sliding_windows,
)
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register_ranks
from engine.layers.operands.precision import widened, working_dtype
from engine.layers.operands.spatial import REAL, Operand, image, spread
from engine.promotion import cast, float_dtype
from engine.tensor import Array, Dim, Number, TensorSpec

_SAME: Final = ("same_upper", "same_lower")


class Pool(Layer):
    """Base of layers that reduce each window to one element; without a stride the windows do not overlap."""

    loops = True

    spatial_rank: int
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...] = ()
    ceil_mode: bool = False

    def __post_init__(self) -> None:
        check_taps(self.windows)
        # PyTorch allows at most half a window, ONNX any padding that leaves an element in every window.
        if any(max(window.before, window.after) >= window.extent for window in self.windows):
            found = f"padding {[max(window.before, window.after) for window in self.windows]}"
            raise ParameterError(
                "padding is at least as large as a window",
                found=found,
                expected=f"window {[window.extent for window in self.windows]}",
            )

    @property
    def windows(self) -> tuple[Window, ...]:
        """The window on each spatial axis, without padding that depends on sizes."""
        return self.sliding()

    def windows_on(self, sizes: Sequence[Dim]) -> tuple[Window, ...]:
        """Return the window on each spatial axis of these sizes, which may be unknown."""
        return self.windows

    def sliding(self, padding: tuple[int, ...] = (0,), dilation: tuple[int, ...] = (1,)) -> tuple[Window, ...]:
        """Return the windows with padding and dilation, which not every pool has."""
        kernel = spread(self.kernel_size, self.spatial_rank, "kernel_size")
        stride = self.stride or kernel
        return sliding_windows(kernel, stride=stride, padding=padding, dilation=dilation, ceil_mode=self.ceil_mode)

    def pooled(self, input: Operand) -> TensorSpec:
        """Return the spec of an input after pooling.

        Raises:
            ShapeError: when its rank or dtype is wrong, or it is smaller than a window.
        """
        spec, rank = image(input, self.spatial_rank, REAL), self.spatial_rank
        windows = self.windows_on(spec.shape[-rank:])
        result = TensorSpec((*spec.shape[:-rank], *counts(windows, spec.shape[-rank:])), spec.dtype)
        check_padded(spec, windows, result)
        return result

    def flops(self, output: Any, *operands: object) -> int:
        """Return one operation for each tap of each window."""
        spec = output[0] if isinstance(output, tuple) else output
        return (spec.size or 0) * math.prod(window.kernel for window in self.windows)


class PaddedPool(Pool):
    """Base of pools with padding and dilation.

    Parameters:
        padding: one number an axis, or, as only ONNX has, all before and then all after, or "same_upper" or
            "same_lower": for ceil(size / stride) windows, the odd element at the end or at the start.
    """

    padding: tuple[int, ...] | str = (0,)
    dilation: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        if isinstance(self.padding, str) and self.padding not in _SAME:
            raise ParameterError("unknown padding", found=self.padding, expected=f"numbers, {' or '.join(_SAME)}")
        super().__post_init__()

    @property
    def windows(self) -> tuple[Window, ...]:
        padding = (0,) if isinstance(self.padding, str) else self.padding
        return self.sliding(padding, self.dilation or (1,))

    def windows_on(self, sizes: Sequence[Dim]) -> tuple[Window, ...]:
        windows = self.windows
        if not isinstance(self.padding, str):
            return windows
        extents, strides = [each.extent for each in windows], [each.stride for each in windows]
        pairs = same_pairs(sizes, extents, strides, self.padding == "same_upper")
        rows = zip(windows, pairs, strict=True)
        return tuple(replace(window, before=before, after=after) for window, (before, after) in rows)


@register_ranks("F.avg_pool{}d")
class AvgPool(PaddedPool):
    """The mean of each window.

    The divisor is divisor_override, or the size of the window as far as it lies on the input (count_include_pad=False)
    or on the input and its padding. For a dilated window, which only ONNX has, its taps are counted.

    Shapes:
        as MaxPool.
    Dtypes:
        floating and integer; the quotient of integers is truncated.
    Source:
        torch.nn.AvgPool2d, torch.nn.functional.avg_pool2d.
    """

    count_include_pad: bool = True
    divisor_override: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.divisor_override == 0:
            raise ParameterError("divisor_override must not be zero", found=0)

    def infer(self, input: Operand) -> TensorSpec:
        return self.pooled(input)

    def forward(self, input: Array) -> Array:
        x = cast(input, working_dtype(input.dtype))
        return cast(self.average(x, self.windows_on(x.shape[-self.spatial_rank :])), input.dtype)

    def average(self, x: Array, windows: Sequence[Window]) -> Array:
        """Return the means of ``x``, in its dtype."""
        divisor = cast(self.divisors(x.shape[-len(windows) :], windows), x.dtype)
        with np.errstate(all="ignore"):
            total = sums(x, windows)
            if x.dtype.kind == "f":
                return total / divisor
            quotient = np.abs(total) // np.abs(divisor)
            return np.where((total < 0) == (divisor < 0), quotient, -quotient)

    def divisors(self, sizes: Sequence[int], windows: Sequence[Window]) -> Array:
        """Return the divisor of each window's sum, an axis for each window."""
        divisors = np.ones((), np.int64)
        if self.divisor_override is not None:
            return divisors * self.divisor_override
        for window, size in zip(windows, sizes, strict=True):
            low, high = (-window.before, size + window.after) if self.count_include_pad else (0, size)
            starts = window.starts(size)
            first = np.maximum(-((starts - low) // window.dilation), 0)
            last = np.minimum((high - 1 - starts) // window.dilation, window.kernel - 1)
            divisors = divisors[..., None] * np.maximum(last - first + 1, 1)
        return divisors


def sums(x: Array, windows: Sequence[Window]) -> Array:
    """Return the sum of each window."""
    return over_windows(np.add, x, windows, 0)


def over_windows(combine: np.ufunc, x: Array, windows: Sequence[Window], padding: Number) -> Array:
    """Return the reduction of each window, two elements at a time.

    Computed an axis at a time: a Python iteration for every tap of an axis, not of the window, however large it is.
    """
    sizes = x.shape[-len(windows) :]
    x = pad(x, windows, padding)
    for axis, (window, size) in enumerate(zip(windows, sizes, strict=True), start=x.ndim - len(windows)):
        lead = (slice(None),) * axis
        first, *others = (x[(*lead, tap)] for tap in window.taps(len(window.starts(size))))
        x = reduce(combine, cancellable(others), first)
    return x


@register_ranks("F.lp_pool{}d")
class LPPool(Pool):
    """(taps * mean(x^p) over each window)^(1/p): of x itself, not its magnitude, so that odd powers can give NaN.

    A last window shortened by ceil_mode counts its mean for all its taps.

    Dtypes:
        floating; integers become float32.
    Source:
        torch.nn.functional.lp_pool2d.
    """

    norm_type: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.norm_type == 0:
            raise ParameterError("norm_type must not be zero", found=self.norm_type)

    def infer(self, input: Operand) -> TensorSpec:
        spec = self.pooled(input)
        return TensorSpec(spec.shape, float_dtype(spec.dtype))

    def forward(self, input: Array) -> Array:
        dtype = self.infer(input).dtype
        windows = self.windows
        mean = AvgPool(spatial_rank=self.spatial_rank, kernel_size=self.kernel_size)
        with np.errstate(all="ignore"):
            # A composition in PyTorch: half precision is rounded at each step, and can overflow there.
            powers = widened(cast(np.power(widened(input), self.norm_type), dtype))
            means = widened(cast(mean.average(powers, windows), dtype))
            scaled = widened(cast(means * math.prod(window.kernel for window in windows), dtype))
            return cast(np.power(scaled, 1 / self.norm_type), dtype)
