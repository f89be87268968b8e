"""Windows of taps that slide over the spatial axes: their number, positions and views.

A window is described per axis. Sizes may be None, unknown before a run; so are the counts that follow from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

import numpy as np

from engine.cancellation import cancellable
from engine.errors import ShapeError
from engine.ir.dims import hint, largest
from engine.ir.strided import AnyArray
from engine.layers.operands.spatial import of_last_axes, spread
from engine.layers.operands.views import sliding
from engine.limits import check_scratch, check_steps
from engine.tensor import Array, Dim, Number, TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Taps of a window on one axis, and its steps.

    Args:
        kernel: number of taps.
        stride: from one window to the next.
        dilation: from one tap to the next.
        before, after: padding.
        ceil_mode: let a last window hang over the end, if it starts on the input or on the padding before it.
    """

    kernel: int
    stride: int = 1
    dilation: int = 1
    before: int = 0
    after: int = 0
    ceil_mode: bool = False

    @property
    def extent(self) -> int:
        """Distance from the first tap to the last, both included."""
        return self.dilation * (self.kernel - 1) + 1

    def count(self, size: Dim) -> Dim:
        """Return the number of windows on an axis of a size.

        Raises:
            ShapeError: there is none.
        """
        return None if size is None else self._count(size)

    def _count(self, size: int) -> int:
        if self.ceil_mode:  # windows that begin on the input or before it; the last may hang over
            over = min(self.after - self.extent + self.stride, 0)
            count = -(-(size + self.before + over) // self.stride)
        else:
            count = (size + self.before + self.after - self.extent) // self.stride + 1
        if size < 1 or count < 1:
            raise ShapeError(
                "the input is smaller than the window",
                found=f"size {size}, padded {size + self.before + self.after}",
                expected=f"at least {self.extent}",
            )
        return count

    def margins(self, size: int) -> tuple[int, int]:
        """Return the padding before and after with which no window hangs over."""
        last = (self._count(size) - 1) * self.stride - self.before
        end = last + self.extent if self.ceil_mode else 0
        return self.before, max(self.after, end - size)

    def starts(self, size: int) -> Array:
        """Return the first positions of the windows, counted from the first element that is not padding."""
        return np.arange(self._count(size)) * self.stride - self.before

    def taps(self, count: int) -> list[slice]:
        """Return for each tap its positions in all windows, on the padded axis."""
        span = (count - 1) * self.stride + 1
        starts = range(0, self.extent, self.dilation)
        return [slice(start, start + span, self.stride) for start in starts]


def sliding_windows(
    kernel: tuple[int, ...],
    *,
    stride: tuple[int, ...] = (1,),
    padding: tuple[int, ...] = (0,),
    dilation: tuple[int, ...] = (1,),
    ceil_mode: bool = False,
) -> tuple[Window, ...]:
    """Return a window for each axis, from PyTorch's parameters; single numbers are repeated for every axis.

    Args:
        padding: numbers before and after every axis, or first all numbers before, then all numbers after.

    Raises:
        ParameterError: when a parameter has the wrong length or a number is too small.
    """
    return _sliding_windows(tuple(kernel), tuple(stride), tuple(padding), tuple(dilation), ceil_mode)


@lru_cache(maxsize=1024)
def _sliding_windows(
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil_mode: bool,
) -> tuple[Window, ...]:
    rank = len(kernel)
    starts, ends = (padding[:rank], padding[rank:]) if len(padding) == 2 * rank else (padding, padding)
    rows = zip(
        spread(kernel, rank, "kernel_size"),
        spread(stride, rank, "stride"),
        spread(starts, rank, "padding", 0),
        spread(ends, rank, "padding", 0),
        spread(dilation, rank, "dilation"),
        strict=True,
    )
    return tuple(
        Window(kernel=k, stride=s, before=p, after=q, dilation=d, ceil_mode=ceil_mode) for k, s, p, q, d in rows
    )


def counts(windows: Sequence[Window], sizes: Sequence[Dim]) -> tuple[Dim, ...]:
    """Return the number of windows on each axis."""
    return tuple(window.count(size) for window, size in zip(windows, sizes, strict=True))


def check_padded(input: TensorSpec, windows: Sequence[Window], output: TensorSpec) -> None:
    """Refuse windows whose padding is far larger than the input, as a padded copy of the input is made.

    Args:
        output: the spec of the result.

    Raises:
        ShapeError: naming the padded shape.
    """
    sizes = hint(input.shape[-len(windows) :])
    padded = [None if n is None else sum((n, *window.margins(n))) for window, n in zip(windows, sizes, strict=True)]
    of_bytes = sum((hint(spec.size) or 0) * spec.dtype.itemsize for spec in (input, output))
    check_scratch((*input.shape[: -len(windows)], *padded), input.dtype, of_bytes, "the padded input")


def check_taps(windows: Sequence[Window]) -> None:
    """Refuse windows with too many taps on an axis.

    Raises:
        ShapeError: naming their number.
    """
    check_steps(max(window.kernel for window in windows), "taps in a window")


def pad(x: Array, windows: Sequence[Window], value: Number = 0) -> Array:
    """Return ``x`` with the windows' padding around its last axes; ``x`` itself if there is none."""
    sizes = x.shape[-len(windows) :]
    margins = [window.margins(size) for window, size in zip(windows, sizes, strict=True)]
    if not any(map(any, margins)):
        return x
    lead = x.shape[: -len(windows)]
    shape = [before + size + after for size, (before, after) in zip(sizes, margins, strict=True)]
    padded = np.full((*lead, *shape), value, x.dtype)
    inner = [slice(before, before + size) for size, (before, _) in zip(sizes, margins, strict=True)]
    padded[of_last_axes(*inner)] = x
    return padded


def columns(padded: AnyArray, windows: Sequence[Window]) -> AnyArray:
    """Return every window as a read-only view: (..., *padded sizes) -> (..., *taps, *counts)."""
    rank = len(windows)
    view = sliding(padded, [window.extent for window in windows], range(-rank, 0))
    moves = [slice(None, None, window.stride) for window in windows]
    steps = [slice(None, None, window.dilation) for window in windows]
    move: Callable[..., Any] = np.moveaxis  # its types do not know meta tensors
    found: AnyArray = move(view[of_last_axes(*moves, *steps)], range(-rank, 0), range(padded.ndim - rank, padded.ndim))
    return found


def overlap_add(values: Array, windows: Sequence[Window], sizes: Sequence[int]) -> Array:
    """Compute the transpose of columns(): every value is added at the position of its tap.

    Shapes:
        values (..., *taps, *counts) -> (..., *sizes), the padding cut off.
    """
    rank = len(windows)
    canvas = [window.before + size + window.after for window, size in zip(windows, sizes, strict=True)]
    total = np.zeros((*values.shape[: -2 * rank], *canvas), values.dtype)
    for tap, places in each_tap(windows, values.shape[-rank:]):
        total[of_last_axes(*places)] += values[of_last_axes(*tap, *(slice(None),) * rank)]
    inner = [slice(window.before, window.before + size) for window, size in zip(windows, sizes, strict=True)]
    result: Array = total[of_last_axes(*inner)]
    return result


def each_tap(windows: Sequence[Window], counts: Sequence[int]) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """Yield each tap's index per axis, and its positions on the padded axes; the last axis varies fastest."""
    check_steps(prod(window.kernel for window in windows), "taps in a window")
    places = [window.taps(count) for window, count in zip(windows, counts, strict=True)]
    numbers = product(*(range(window.kernel) for window in windows))
    return cancellable(zip(numbers, product(*places), strict=True))


def same_pairs(
    sizes: Sequence[Dim], extents: Sequence[int], stride: Sequence[int], is_upper: bool
) -> list[tuple[int, int]]:
    """Return the padding for ceil(size / stride) windows on each axis; odd elements go to the end if ``is_upper``."""
    pairs = []
    for size, extent, step in zip(sizes, extents, stride, strict=True):
        length = size or 0
        total = (-(-length // step) - 1) * step + extent - length
        if extent < step:
            total = largest(total, 0)
        less = total // 2
        pairs.append((less, total - less) if is_upper else (total - less, less))
    return pairs
