"""Pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.layers.convolution.window import Window
from engine.layers.pooling import adaptive_pool, max_pool, pool
from engine.onnx_writing.registry import writes
from engine.onnx_writing.rules.convolution import batched
from engine.onnx_writing.rules.functions import number, times, where
from engine.onnx_writing.value import Value
from engine.onnx_writing.writer import FLOAT64, INT64, Writer
from engine.promotion import float_dtype


def _attributes(layer: pool.PaddedPool, input: Value) -> dict[str, Any]:
    """Return the attributes of a pool; with known sizes a last window that hangs over becomes padding."""
    sizes = input.shape[-layer.spatial_rank :]
    windows: Sequence[Window] = layer.windows_on(sizes) if None not in sizes else layer.windows
    dilations = [each.dilation for each in windows]
    result: dict[str, Any] = {
        "kernel_shape": [each.kernel for each in windows],
        "strides": [each.stride for each in windows],
        "dilations": dilations if max(dilations) > 1 else None,
    }
    if None not in sizes:
        margins = [each.margins(size or 0) for each, size in zip(windows, sizes, strict=True)]
        result["pads"] = [*(before for before, _ in margins), *(after for _, after in margins)]
    elif isinstance(layer.padding, str):
        result["auto_pad"] = layer.padding.upper()
    else:
        result["pads"] = [*(each.before for each in windows), *(each.after for each in windows)]
        result["ceil_mode"] = 1 if layer.ceil_mode else None
    return result


@writes(max_pool.MaxPool)
def max_pool_(to: Writer, layer: max_pool.MaxPool, input: Value) -> Any:
    attributes, rank = _attributes(layer, input), layer.spatial_rank
    dtype = input.dtype
    x = to.cast(input, FLOAT64) if dtype.kind in "iu" and dtype.itemsize > 1 else input

    def write(image: Value) -> Any:
        if layer.returns == 0:
            return to.op("MaxPool", image, **attributes)
        return tuple(to.ops("MaxPool", [image], [image.dtype, INT64], **attributes))

    result = batched(to, x, rank, write)
    if layer.returns == 0:
        return to.cast(result, dtype)
    values, indices = result
    if not layer.counts_in_whole:
        indices = to.op("Mod", indices, _elements(to, input, rank))
    return (to.cast(values, dtype), indices)[layer.returns]


def _elements(to: Writer, image: Value, rank: int) -> Value:
    """Return the number of elements of the last axes."""
    return to.op("ReduceProd", to.sizes(image, image.rank - rank, image.rank), keepdims=0, shape=())


@writes(pool.AvgPool)
def avg_pool(to: Writer, layer: pool.AvgPool, input: Value) -> Value:
    if input.dtype.kind != "f":
        to.refuse("ONNX has no average pools of integers", "cast the input to float32 before")
    attributes, rank = _attributes(layer, input), layer.spatial_rank
    sizes, windows = input.shape[-rank:], layer.windows
    is_static = None not in sizes
    hangs = is_static and layer.ceil_mode and attributes["pads"] != _own_padding(windows)
    if layer.divisor_override is None and not hangs:
        return batched(to, input, rank, lambda x: _average(to, x, attributes, layer.count_include_pad))
    if layer.divisor_override is None and not is_static:
        to.refuse("the divisor of the last window depends on a dynamic size", "export the model with fixed sizes")
    total = batched(to, input, rank, lambda x: _average(to, x, attributes, True))
    taps = math.prod(each.kernel for each in windows)
    if layer.divisor_override is not None:
        return times(to, total, taps / layer.divisor_override)
    divisors = layer._divisors([size or 0 for size in sizes], windows)
    return to.op("Mul", total, to.constant(taps / divisors, input.dtype))


def _own_padding(windows: Sequence[Window]) -> list[int]:
    return [*(each.before for each in windows), *(each.after for each in windows)]


def _average(to: Writer, x: Value, attributes: dict[str, Any], includes_padding: bool) -> Value:
    return to.op("AveragePool", x, count_include_pad=int(includes_padding) or None, **attributes)


@writes(pool.LPPool)
def lp_pool(to: Writer, layer: pool.LPPool, input: Value) -> Value:
    x = to.cast(input, float_dtype(input.dtype))
    padded = pool.AvgPool(
        spatial_rank=layer.spatial_rank,
        kernel_size=layer.kernel_size,
        stride=layer.stride,
        ceil_mode=layer.ceil_mode,
        count_include_pad=False,
    )
    powers = to.op("Pow", x, number(to, layer.norm_type, x), shape=x.sizes)
    means = avg_pool(to, padded, powers)
    taps = math.prod(window.kernel for window in layer.windows)
    return to.op("Pow", times(to, means, taps), number(to, 1 / layer.norm_type, x))


# To a given size


@writes(adaptive_pool.AdaptiveAvgPool)
def adaptive_avg_pool(to: Writer, layer: adaptive_pool.AdaptiveAvgPool, input: Value) -> Value:
    wanted, sizes = _wanted(layer, input)
    axes = [input.rank - layer.spatial_rank + k for k in range(layer.spatial_rank)]
    if all(want == 1 for want in wanted):
        if input.rank == layer.spatial_rank + 2:
            return to.op("GlobalAveragePool", input)
        return to.op("ReduceMean", input, to.constant(axes, INT64), keepdims=1)
    if _divides(wanted, sizes):
        kernel = [size // want for size, want in zip(sizes, wanted, strict=True)]
        return batched(
            to, input, layer.spatial_rank, lambda x: to.op("AveragePool", x, kernel_shape=kernel, strides=kernel)
        )
    x = input
    for axis, size, want in zip(axes, input.shape[-layer.spatial_rank :], wanted, strict=True):
        if want == 1:
            x = to.op("ReduceMean", x, to.constant([axis], INT64), keepdims=1)
        elif want is not None and want != size:
            x = _segment_means(to, x, axis, *_segments(to, size, want), rank=input.rank)
    return x


def _wanted(layer: adaptive_pool.AdaptivePool, input: Value) -> tuple[list[Any], list[Any]]:
    sizes = list(input.shape[-layer.spatial_rank :])
    return list(layer._output_sizes(tuple(sizes))), sizes


def _divides(wanted: Sequence[Any], sizes: Sequence[Any]) -> bool:
    return None not in (*wanted, *sizes) and all(size % want == 0 for size, want in zip(sizes, wanted, strict=True))


def _segments(to: Writer, size: int | None, count: int) -> tuple[Any, Any]:
    """Return the places of the elements of every segment, the last repeated, and which are repetitions."""
    (known,) = to.known((size,), "the size of a pooled axis")
    starts, ends = adaptive_pool._segments(known, count)
    steps = starts[:, None] + np.arange(int((ends - starts).max()))
    return np.minimum(steps, ends[:, None] - 1), steps >= ends[:, None]


def _segment_means(to: Writer, x: Value, axis: int, places: Any, repeated: Any, rank: int) -> Value:
    gathered = to.op("Gather", x, to.constant(places, INT64), axis=axis)
    tail = (1,) * (rank - 1 - axis)
    kept = where(to, to.constant(repeated.reshape(*repeated.shape, *tail)), 0.0, gathered)
    total = to.op("ReduceSum", kept, to.constant([axis + 1], INT64), keepdims=0)
    lengths = (~repeated).sum(1).reshape(-1, *tail)
    return to.op("Div", total, to.constant(lengths, x.dtype))


@writes(adaptive_pool.AdaptiveMaxPool)
def adaptive_max_pool(to: Writer, layer: adaptive_pool.AdaptiveMaxPool, input: Value) -> Any:
    wanted, sizes = _wanted(layer, input)
    rank, first = layer.spatial_rank, input.rank - layer.spatial_rank
    if layer.returns == 0:
        x = input
        for axis, size, want in zip(range(first, input.rank), sizes, wanted, strict=True):
            if want == 1:
                x = to.op("ReduceMax", x, to.constant([axis], INT64), keepdims=1)
            elif want is not None and want != size:
                x = to.op("Gather", x, to.constant(_segments(to, size, want)[0], INT64), axis=axis)
                x = to.op("ReduceMax", x, to.constant([axis + 1], INT64), keepdims=0)
        return x
    return _maxima_with_indices(to, input, first, rank, sizes, wanted)[layer.returns]


def _maxima_with_indices(
    to: Writer, input: Value, first: int, rank: int, sizes: Sequence[Any], wanted: Sequence[Any]
) -> tuple[Value, Value]:
    """Write maxima and their places in the flattened spatial axes, from the gathered elements of every window."""
    places = [_segments(to, size, want)[0] for size, want in zip(sizes, wanted, strict=True)]
    x = input
    for k, each in enumerate(places):  # every gathering adds an axis: of segments, and of their elements
        x = to.op("Gather", x, to.constant(each, INT64), axis=first + 2 * k)
    counts, taps = zip(*(each.shape for each in places), strict=True)
    order = [*range(first), *(first + 2 * k for k in range(rank)), *(first + 2 * k + 1 for k in range(rank))]
    lead = [to.size(input, axis) for axis in range(first)]
    windows = to.reshape(to.op("Transpose", x, perm=order), [*lead, *counts, math.prod(taps)])
    values = to.op("ReduceMax", windows, to.constant([-1], INT64), keepdims=0)
    chosen = to.op("ArgMax", windows, axis=-1, keepdims=1, dtype=INT64)
    flat = _flat_places(places, sizes)
    table = to.op("Expand", to.constant(flat, INT64), to.vector([*lead, *flat.shape]))
    return values, to.op("Squeeze", to.op("GatherElements", table, chosen, axis=-1), to.constant([-1], INT64))


def _flat_places(places: Sequence[Any], sizes: Sequence[int]) -> Any:
    """Return the place in the flattened axes of every element (last axis) of every window."""
    rank = len(places)
    flat = np.zeros((), np.int64)
    for k, (each, size) in enumerate(zip(places, sizes, strict=True)):
        shape = [1] * (2 * rank)
        shape[k], shape[rank + k] = each.shape
        flat = flat * size + each.reshape(shape)
    return flat.reshape(*flat.shape[:rank], -1)
