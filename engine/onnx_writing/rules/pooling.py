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
from engine.onnx_writing.value import Value
from engine.onnx_writing.writer import INT64, Writer
from engine.promotion import float_dtype


def _attributes(layer: pool.PaddedPool, input: Value) -> dict[str, Any]:
    """Return the attributes of a pool; with known sizes a last window that hangs over becomes padding.

    onnxruntime refuses padding that is not smaller than the kernel, as a dilated window may need.
    """
    sizes = input.shape[-layer.spatial_rank :]
    windows: Sequence[Window] = layer.windows_on(sizes) if None not in sizes else layer.windows
    dilations = [each.dilation for each in windows]
    result: dict[str, Any] = {
        "kernel_shape": [each.kernel for each in windows],
        "strides": [each.stride for each in windows],
        "dilations": dilations if max(dilations) > 1 else None,
    }
    pairs = zip(windows, sizes, strict=True)
    margins = [] if None in sizes else [each.margins(size or 0) for each, size in pairs]
    if margins and all(max(pair) < each.kernel for pair, each in zip(margins, windows, strict=True)):
        return result | {"pads": [*(before for before, _ in margins), *(after for _, after in margins)]}
    if isinstance(layer.padding, str):
        return result | {"auto_pad": layer.padding.upper()}
    return result | {"pads": _pads(windows), "ceil_mode": 1 if layer.ceil_mode else None}


def _pads(windows: Sequence[Window]) -> list[int]:
    return [*(each.before for each in windows), *(each.after for each in windows)]


@writes(max_pool.MaxPool)
def max_pool_(to: Writer, layer: max_pool.MaxPool, input: Value) -> Any:
    attributes, rank = _attributes(layer, input), layer.spatial_rank
    dtypes = [None, INT64][: 1 if layer.returns == 0 else 2]
    found = batched(to, input, rank, lambda image: tuple(to.ops("MaxPool", [image], dtypes, **attributes)))
    if layer.returns == 0:
        return found[0]
    values, indices = found
    if not layer.counts_in_whole:
        elements = to.op("ReduceProd", to.sizes(input, input.rank - rank, input.rank), keepdims=0)
        indices = to.op("Mod", indices, elements)
    return (values, indices)[layer.returns]


@writes(pool.AvgPool)
def avg_pool(to: Writer, layer: pool.AvgPool, input: Value) -> Value:
    if input.dtype.kind != "f":
        to.refuse("ONNX has no average pools of integers", "cast the input to float32 before")
    attributes, rank, windows = _attributes(layer, input), layer.spatial_rank, layer.windows
    sizes = input.shape[-rank:]
    hangs = None not in sizes and layer.ceil_mode and attributes["pads"] != _pads(windows)
    is_plain = layer.divisor_override is None and not hangs
    attributes["count_include_pad"] = 1 if layer.count_include_pad or not is_plain else None
    mean = batched(to, input, rank, lambda x: to.op("AveragePool", x, **attributes))
    if is_plain:
        return mean
    return mean * to.constant(
        math.prod(each.kernel for each in windows) / layer.divisors([size or 0 for size in sizes], windows), input.dtype
    )


@writes(pool.LPPool)
def lp_pool(to: Writer, layer: pool.LPPool, input: Value) -> Value:
    x = to.cast(input, float_dtype(input.dtype))
    means = pool.AvgPool(
        spatial_rank=layer.spatial_rank,
        kernel_size=layer.kernel_size,
        stride=layer.stride,
        ceil_mode=layer.ceil_mode,
        count_include_pad=False,
    )
    sums = avg_pool(to, means, to.op("Pow", x, layer.norm_type)) * math.prod(each.kernel for each in layer.windows)
    return to.op("Pow", sums, 1 / layer.norm_type)


# To a given size


@writes(adaptive_pool.AdaptiveAvgPool)
def adaptive_avg_pool(to: Writer, layer: adaptive_pool.AdaptiveAvgPool, input: Value) -> Value:
    rank = layer.spatial_rank
    axes, sizes, wanted = _spatial(layer, input)
    if all(want == 1 for want in wanted):
        return (
            to.op("GlobalAveragePool", input) if input.rank == rank + 2 else to.reduce("ReduceMean", input, axes, True)
        )
    if None not in (*wanted, *sizes) and all(size % want == 0 for size, want in zip(sizes, wanted, strict=True)):
        kernel = [size // want for size, want in zip(sizes, wanted, strict=True)]
        return batched(to, input, rank, lambda x: to.op("AveragePool", x, kernel_shape=kernel, strides=kernel))
    x = input
    for axis, size, want in zip(axes, sizes, wanted, strict=True):
        if want == 1:
            x = to.reduce("ReduceMean", x, [axis], True)
        elif want not in (None, size):
            places, is_repeated = _segments(to, size, want)
            shape = (*places.shape, *(1,) * (input.rank - 1 - axis))
            kept = to.where(to.constant(is_repeated.reshape(shape)), 0, to.take(x, places, axis))
            lengths = (~is_repeated).sum(1).reshape(-1, *shape[2:])
            x = to.op("ReduceSum", kept, [axis + 1], keepdims=0) / to.constant(lengths, x.dtype)
    return x


def _spatial(layer: adaptive_pool.AdaptivePool, input: Value) -> tuple[list[int], list[Any], list[Any]]:
    """Return the spatial axes, their sizes, and those of the result."""
    axes = list(range(input.rank - layer.spatial_rank, input.rank))
    sizes = input.shape[axes[0] :]
    return axes, list(sizes), list(layer.output_sizes(sizes))


def _segments(to: Writer, size: int | None, count: int) -> tuple[Any, Any]:
    """Return the places of the elements of every segment, the last repeated, and which are repetitions."""
    (known,) = to.known((size,), "the size of a pooled axis")
    starts, ends = adaptive_pool.segments(known, count)
    steps = starts[:, None] + np.arange(int((ends - starts).max()))
    return np.minimum(steps, ends[:, None] - 1), steps >= ends[:, None]


@writes(adaptive_pool.AdaptiveMaxPool)
def adaptive_max_pool(to: Writer, layer: adaptive_pool.AdaptiveMaxPool, input: Value) -> Any:
    if layer.returns != 0:
        return _maxima_with_indices(to, layer, input)[layer.returns]
    x = input
    for axis, size, want in zip(*_spatial(layer, input), strict=True):
        if want == 1:
            x = to.reduce("ReduceMax", x, [axis], True)
        elif want not in (None, size):
            x = to.op("ReduceMax", to.take(x, _segments(to, size, want)[0], axis), [axis + 1], keepdims=0)
    return x


def _maxima_with_indices(to: Writer, layer: adaptive_pool.AdaptiveMaxPool, input: Value) -> tuple[Value, Value]:
    """Write maxima and their places in the flattened spatial axes, from the gathered elements of every window."""
    axes, sizes, wanted = _spatial(layer, input)
    first, rank = axes[0], len(axes)
    places = [_segments(to, size, want)[0] for size, want in zip(sizes, wanted, strict=True)]
    x = input
    for k, each in enumerate(places):  # every gathering adds an axis: of segments, and of their elements
        x = to.take(x, each, first + 2 * k)
    counts, taps = zip(*(each.shape for each in places), strict=True)
    order = [*range(first), *(first + 2 * k for k in range(rank)), *(first + 2 * k + 1 for k in range(rank))]
    lead = input.all_sizes()[:first]
    windows = to.reshape(to.op("Transpose", x, perm=order), [*lead, *counts, math.prod(taps)])
    chosen = to.op("ArgMax", windows, axis=-1, keepdims=1)
    flat = _flat_places(places, sizes)
    table = to.op("Expand", flat, to.vector([*lead, *flat.shape]), dtype=INT64)
    indices = to.op("GatherElements", table, chosen, axis=-1)
    return to.op("ReduceMax", windows, [-1], keepdims=0), to.op("Squeeze", indices, [-1])


def _flat_places(places: Sequence[Any], sizes: Sequence[int]) -> Any:
    """Return the place in the flattened axes of every element (last axis) of every window."""
    rank = len(places)
    flat = np.zeros((), np.int64)
    for k, (each, size) in enumerate(zip(places, sizes, strict=True)):
        shape = [1] * (2 * rank)
        shape[k], shape[rank + k] = each.shape
        flat = flat * size + each.reshape(shape)
    return flat.reshape(*flat.shape[:rank], -1)
