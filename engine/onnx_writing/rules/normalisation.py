"""Normalisation and softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.layers.normalisation import layer_norm, norm, softmax
from engine.onnx_writing.registry import writes
from engine.onnx_writing.value import Value
from engine.onnx_writing.writer import FLOAT32, Writer
from engine.promotion import float_dtype
from engine.tensor import product


def _operands(to: Writer, input: Value, *others: Value | None) -> list[Any]:
    """Return operands in the floating dtype of the first."""
    dtype = float_dtype(input.dtype)
    return [None if each is None else to.cast(each, dtype) for each in (input, *others)]


def _affine(
    to: Writer, scale: Value | None, shift: Value | None, shape: Sequence[int | None], like: Value
) -> tuple[Value, Value]:
    """Return scale and shift of each channel, ones and zeros if there are none."""
    ones, zeros = (
        _full(to, number, shape, like) if each is None else each for number, each in ((1, scale), (0, shift))
    )
    return ones, zeros


def _full(to: Writer, number: float, shape: Sequence[int | None], like: Value) -> Value:
    return to.constant(np.full(to.known(shape, "the number of channels"), number), like.dtype)


@writes(norm.BatchNorm)
def batch_norm(
    to: Writer,
    layer: norm.BatchNorm,
    input: Value,
    running_mean: Value | None,
    running_var: Value | None,
    weight: Value | None = None,
    bias: Value | None = None,
) -> Value:
    x, mean, variance, scale, shift = _operands(to, input, running_mean, running_var, weight, bias)
    if mean is None or variance is None:
        return _by_channel(to, standardised(to, x, [0, *range(2, input.rank)], layer.eps), scale, shift)
    affine = _affine(to, scale, shift, input.shape[1:2], x)
    return to.op("BatchNormalization", x, *affine, mean, variance, epsilon=layer.eps)


def standardised(to: Writer, x: Value, axes: Sequence[int], eps: float) -> Value:
    """Write (x - mean) / sqrt(var + eps) with the statistics of some axes."""
    centred = x - to.reduce("ReduceMean", x, axes, True)
    return centred / to.op("Sqrt", to.reduce("ReduceMean", centred * centred, axes, True) + eps)


def _by_channel(to: Writer, x: Value, scale: Value | None, shift: Value | None) -> Value:
    """Write x * scale + shift, channel by channel."""
    tail = [1] * (x.rank - 2)
    x = x if scale is None else x * to.reshape(scale, (-1, *tail))
    return x if shift is None else x + to.reshape(shift, (-1, *tail))


@writes(norm.InstanceNorm)
def instance_norm(
    to: Writer,
    layer: norm.InstanceNorm,
    input: Value,
    running_mean: Value | None = None,
    running_var: Value | None = None,
    weight: Value | None = None,
    bias: Value | None = None,
) -> Value:
    x, mean, variance, scale, shift = _operands(to, input, running_mean, running_var, weight, bias)
    is_single = len(layer.batched(input.shape)) > input.rank
    x = to.unsqueeze(x, 0) if is_single else x
    affine = _affine(to, scale, shift, x.shape[1:2], x)
    if mean is not None and variance is not None and not layer.use_input_stats:
        y = to.op("BatchNormalization", x, *affine, mean, variance, epsilon=layer.eps)
    else:
        y = to.op("InstanceNormalization", x, *affine, epsilon=layer.eps)
    return to.op("Squeeze", y, [0]) if is_single else y


@writes(norm.GroupNorm)
def group_norm(
    to: Writer, layer: norm.GroupNorm, input: Value, weight: Value | None = None, bias: Value | None = None
) -> Value:
    x, scale, shift = _operands(to, input, weight, bias)
    size = product(input.shape[1:])
    groups = to.reshape(x, [to.size(input, 0), layer.num_groups, size // layer.num_groups if size else -1])
    plain = _affine(to, None, None, (layer.num_groups,), x)
    normal = to.op("InstanceNormalization", groups, *plain, epsilon=layer.eps)
    return _by_channel(to, to.op("Reshape", normal, to.sizes(input), shape=input.shape), scale, shift)


@writes(norm.LocalResponseNorm)
def local_response_norm(to: Writer, layer: norm.LocalResponseNorm, input: Value) -> Value:
    x = to.cast(input, float_dtype(input.dtype))
    if layer.size % 2 and input.rank == 4:
        return to.op("LRN", x, size=layer.size, alpha=layer.alpha, beta=layer.beta, bias=layer.k)
    # LRN of runtimes takes images and windows of odd sizes only, so the channels become the rows of an image.
    (channels,) = to.known(input.shape[1:2], "the number of channels")
    rows = to.op("Reshape", x * x, [0, 1, channels, -1])
    means = to.op("AveragePool", rows, kernel_shape=[layer.size, 1], count_include_pad=1,
                  pads=[layer.size // 2, 0, (layer.size - 1) // 2, 0])  # fmt: skip
    means = to.op("Reshape", means, to.sizes(input), shape=input.shape)
    return x / to.op("Pow", means * layer.alpha + layer.k, layer.beta)


# Over the last axes


@writes(layer_norm.LayerNorm)
def layer_norm_(
    to: Writer, layer: layer_norm.LayerNorm, input: Value, weight: Value | None = None, bias: Value | None = None
) -> Value:
    return layer_norm_statistics(to, layer, input, weight, bias, count=1)[0]


@writes(layer_norm.LayerNormStatistics)
def layer_norm_statistics(
    to: Writer, layer: Any, input: Value, weight: Value | None = None, bias: Value | None = None, count: int = 3
) -> tuple[Value, ...]:
    x, scale, shift = _operands(to, input, weight, bias)
    scale = _full(to, 1, layer.normalized_shape, x) if scale is None else scale
    attributes = {"axis": -len(layer.normalized_shape), "epsilon": layer.eps}
    dtypes = [x.dtype, FLOAT32, FLOAT32][:count]
    return tuple(to.ops("LayerNormalization", [x, scale, shift], dtypes, **attributes))


@writes(layer_norm.RMSNorm)
def rms_norm(to: Writer, layer: layer_norm.RMSNorm, input: Value, weight: Value | None = None) -> Value:
    x, scale = _operands(to, input, weight)
    eps = float(np.finfo(x.dtype).eps) if layer.eps is None else layer.eps
    axes = [-1 - k for k in range(len(layer.normalized_shape))]
    y: Value = x / to.op("Sqrt", to.reduce("ReduceMean", x * x, axes, True) + eps)
    return y if scale is None else y * scale


# Softmax


@writes(softmax.Softmax, softmax.LogSoftmax)
def softmax_(to: Writer, layer: softmax.Softmax | softmax.LogSoftmax, input: Value) -> Value:
    type = "Softmax" if isinstance(layer, softmax.Softmax) else "LogSoftmax"
    x = to.cast(input, to.inferred(layer, input).dtype)
    if input.rank == 0:
        return to.reshape(to.op(type, to.reshape(x, (1,)), axis=0), ())
    return to.op(type, x, axis=layer.axis(input.rank))
