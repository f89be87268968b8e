"""How the windows of a pooling layer lie along the axes of what is pooled."""

from __future__ import annotations

from collections.abc import Sequence

from engine.compiler.kernels.axis import WindowAxis
from engine.compiler.storage import View
from engine.layers.convolution.window import Window
from engine.layers.pooling.pool import Pool


def windows_of(layer: Pool, x: View, counts: Sequence[int]) -> list[WindowAxis]:
    """The windows a layer slides, of which so many fit."""
    return axes_of(layer.windows, x.shape[2:], counts)


def axes_of(windows: Sequence[Window], sizes: Sequence[int], counts: Sequence[int]) -> list[WindowAxis]:
    """Windows along axes of these sizes."""
    return [
        WindowAxis(
            size=size,
            count=count,
            kernel=window.kernel,
            stride=window.stride,
            dilation=window.dilation,
            padding=window.before,
            after=None if window.after == window.before else window.after,
        )
        for size, count, window in zip(sizes, counts, windows, strict=True)
    ]


def even_windows(x: View, counts: Sequence[int]) -> list[WindowAxis]:
    """Windows of adaptive pooling, where so many cover every axis evenly."""
    return [
        WindowAxis(size=size, count=count, is_adaptive=True) for size, count in zip(x.shape[2:], counts, strict=True)
    ]


def three(axes: Sequence[WindowAxis]) -> Sequence[WindowAxis]:
    """The windows along planes, rows and columns."""
    return [WindowAxis(size=1, count=1)] * (3 - len(axes)) + list(axes)
