"""Normalisation and softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.layers.normalisation import layer_norm, norm, softmax
from engine.onnx_writing.registry import writes
from engine.onnx_writing.rules.functions import number, times
from engine.onnx_writing.value import Value
from engine.onnx_writing.writer import FLOAT32, INT64, Writer
from engine.promotion import float_dtype
from engine.tensor import product


def _operands(to: Writer, input: Value, *others: Value | None) -> list[Any]:
    """Return operands in the floating dtype of the first."""
    dtype = float_dtype(input.dtype)
    return [None if each is None else to.cast(each, dtype) for each in (input, *others)]


def _filled(to: Writer, value: float, shape: Sequence[int | None], like: Value) -> Value:
    return to.constant(np.full(to.known(shape, "the number of channels"), value), like.dtype)


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
        axes = [0, *range(2, input.rank)]
        return _affine(to, standardised(to, x, axes, layer.eps), scale, shift, input.rank)
    channels = input.shape[1:2]
    scale = scale or _filled(to, 1, channels, x)
    shift = shift or _filled(to, 0, channels, x)
    return to.op("BatchNormalization", x, scale, shift, mean, variance, epsilon=layer.eps)


def standardised(to: Writer, x: Value, axes: Sequence[int], eps: float) -> Value:
    """Write (x - mean) / sqrt(var + eps) with the statistics of some axes."""
    places = to.constant(list(axes), INT64)
    centred = to.op("Sub", x, to.op("ReduceMean", x, places, keepdims=1))
    variance = to.op("ReduceMean", to.op("Mul", centred, centred), places, keepdims=1)
    return to.op("Div", centred, to.op("Sqrt", to.op("Add", variance, number(to, eps, x))))


def _affine(to: Writer, x: Value, scale: Value | None, shift: Value | None, rank: int) -> Value:
    """Write x * scale + shift, channel by channel."""
    tail = [1] * (rank - 2)
    x = x if scale is None else to.op("Mul", x, to.reshape(scale, (-1, *tail)))
    return x if shift is None else to.op("Add", x, to.reshape(shift, (-1, *tail)))


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
    is_single = len(layer._batched(input.shape)) > input.rank
    x = to.unsqueeze(x, 0) if is_single else x
    channels = input.shape[0:1] if is_single else input.shape[1:2]
    scale = scale or _filled(to, 1, channels, x)
    shift = shift or _filled(to, 0, channels, x)
    if mean is not None and variance is not None and not layer.use_input_stats:
        y = to.op("BatchNormalization", x, scale, shift, mean, variance, epsilon=layer.eps)
    else:
        y = to.op("InstanceNormalization", x, scale, shift, epsilon=layer.eps)
    return to.op("Squeeze", y, to.constant([0], INT64)) if is_single else y


@writes(norm.GroupNorm)
def group_norm(
    to: Writer, layer: norm.GroupNorm, input: Value, weight: Value | None = None, bias: Value | None = None
) -> Value:
    x, scale, shift = _operands(to, input, weight, bias)
    size = product(input.shape[1:])
    groups = to.reshape(x, [to.size(input, 0), layer.num_groups, size // layer.num_groups if size else -1])
    one, zero = (_filled(to, value, (layer.num_groups,), x) for value in (1, 0))
    normal = to.op("InstanceNormalization", groups, one, zero, epsilon=layer.eps)
    return _affine(to, to.op("Reshape", normal, to.sizes(input)), scale, shift, input.rank)


@writes(norm.LocalResponseNorm)
def local_response_norm(to: Writer, layer: norm.LocalResponseNorm, input: Value) -> Value:
    (x,) = _operands(to, input)
    if layer.size % 2 and input.rank == 4:
        return to.op("LRN", x, size=layer.size, alpha=layer.alpha, beta=layer.beta, bias=layer.k)
    # LRN of runtimes takes images and windows of odd sizes only, so the channels become the rows of an image.
    (channels,) = to.known(input.shape[1:2], "the number of channels")
    square = to.op("Mul", x, x)
    rows = to.op("Reshape", square, to.constant([0, 1, channels, -1], INT64))
    means = to.op("AveragePool", rows, kernel_shape=[layer.size, 1], count_include_pad=1,
                  pads=[layer.size // 2, 0, (layer.size - 1) // 2, 0])  # fmt: skip
    means = to.op("Reshape", means, to.sizes(input))
    base = to.op("Add", times(to, means, layer.alpha), number(to, layer.k, x))
    return to.op("Div", x, to.op("Pow", base, number(to, layer.beta, x)))


# Over the last axes


@writes(layer_norm.LayerNorm)
def layer_norm_(
    to: Writer, layer: layer_norm.LayerNorm, input: Value, weight: Value | None = None, bias: Value | None = None
) -> Value:
    x, scale, shift = _operands(to, input, weight, bias)
    scale = scale or _filled(to, 1, layer.normalized_shape, x)
    return to.op("LayerNormalization", x, scale, shift, axis=-len(layer.normalized_shape), epsilon=layer.eps)


@writes(layer_norm.LayerNormStatistics)
def layer_norm_statistics(
    to: Writer,
    layer: layer_norm.LayerNormStatistics,
    input: Value,
    weight: Value | None = None,
    bias: Value | None = None,
) -> tuple[Value, ...]:
    x, scale, shift = _operands(to, input, weight, bias)
    scale = scale or _filled(to, 1, layer.normalized_shape, x)
    attributes = {"axis": -len(layer.normalized_shape), "epsilon": layer.eps}
    return tuple(to.ops("LayerNormalization", [x, scale, shift], [x.dtype, FLOAT32, FLOAT32], **attributes))


@writes(layer_norm.RMSNorm)
def rms_norm(to: Writer, layer: layer_norm.RMSNorm, input: Value, weight: Value | None = None) -> Value:
    x, scale = _operands(to, input, weight)
    eps = float(np.finfo(x.dtype).eps) if layer.eps is None else layer.eps
    axes = to.constant([-1 - k for k in range(len(layer.normalized_shape))], INT64)
    square = to.op("ReduceMean", to.op("Mul", x, x), axes, keepdims=1)
    y = to.op("Div", x, to.op("Sqrt", to.op("Add", square, number(to, eps, x))))
    return y if scale is None else to.op("Mul", y, scale)


# Softmax


@writes(softmax.Softmax)
def softmax_(to: Writer, layer: softmax.Softmax, input: Value) -> Value:
    return _along(to, "Softmax", layer, input)


@writes(softmax.LogSoftmax)
def log_softmax(to: Writer, layer: softmax.LogSoftmax, input: Value) -> Value:
    return _along(to, "LogSoftmax", layer, input)


def _along(to: Writer, type: str, layer: Any, input: Value) -> Value:
    x = to.cast(input, layer._dtype(input.dtype))
    if input.rank == 0:
        return to.reshape(to.op(type, to.reshape(x, (1,)), axis=0), ())
    return to.op(type, x, axis=layer.axis(input.rank))
