"""Translators of normalisation."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.errors import ParameterError
from engine.layers.operands.axes import checked_axis
from engine.layers.operands.spatial import FLOATING, tensor
from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import MICROSOFT, translates
from engine.onnx.translation.value import Value
from engine.onnx.translators.precision import in_dtype_of, widened
from engine.onnx.translators.shape import reshaped
from engine.tensor import Array

_LABELS = ("input", "weight", "bias")
_STATISTICS = ("weight", "bias", "running_mean", "running_var")
_INSTANCES = {3: "nn.InstanceNorm1d", 4: "nn.InstanceNorm2d", 5: "nn.InstanceNorm3d"}
_MODULES = {2: "nn.BatchNorm1d", 3: "nn.BatchNorm1d", 4: "nn.BatchNorm2d", 5: "nn.BatchNorm3d"}


@translates("BatchNormalization")
def batch_norm(node: Node) -> Value | list[Value]:
    """Translate to nn.BatchNorm with stored statistics, else to F.batch_norm."""
    x, eps = node.input(0), node.real("epsilon", 1e-5)
    scale, bias, mean, var = (node.input(k) for k in range(1, 5))
    if node.number("spatial", 1) != 1:
        raise ParameterError("statistics of every element are not computed", found="spatial=0", expected="1")
    if node.number("training_mode", 0):
        return _of_the_batch(node, eps)
    module, arrays = _MODULES.get(x.rank or 0), [node.array(k) for k in range(1, 5)]
    stored = {key: each for key, each in zip(_STATISTICS, arrays, strict=True) if each is not None}
    if module is None or any(k not in stored or stored[k].ndim != 1 or stored[k].dtype != x.dtype for k in _STATISTICS):
        labels = ("input", "running_mean", "running_var", "weight", "bias")
        return in_dtype_of(node, node.make("F.batch_norm", x, mean, var, scale, bias, labels=labels, eps=eps), x)
    return node.make(module, x, weights=stored, affine=True, eps=eps, num_features=stored["weight"].size)


def _of_the_batch(node: Node, eps: float) -> list[Value]:
    """Normalise by the statistics of the input; return the running ones, given * momentum + own * (1 - momentum)."""
    x, momentum = node.input(0), node.real("momentum", 0.9)
    y = node.make("F.batch_norm", x, node.input(1), node.input(2), labels=_LABELS, eps=eps, running_mean=None,
                  running_var=None)  # fmt: skip
    results, wide, axes = [in_dtype_of(node, y, x)], widened(node, x), (0, *range(2, node.rank()))
    if any(node.outputs[1:]):
        own = node.make("torch.mean", wide, dim=axes), node.make("torch.var", wide, dim=axes, correction=0)
        for given, now in zip((node.input(3), node.input(4)), own, strict=True):
            kept = node.make("torch.mul", widened(node, given), other=momentum)
            running = node.make("torch.add", kept, node.make("torch.mul", now, other=1 - momentum))
            results.append(in_dtype_of(node, running, given))
    return results


@translates("InstanceNormalization")
def instance_norm(node: Node) -> Value:
    """Translate to nn.InstanceNorm, or to F.instance_norm if the weights are not constant."""
    x, eps = node.input(0), node.real("epsilon", 1e-5)
    module, scale, bias = _INSTANCES.get(x.rank or 0), node.array(1), node.array(2)
    if module is None or scale is None or bias is None or not scale.dtype == bias.dtype == x.dtype:
        return node.make("F.instance_norm", x, node.input(1), node.input(2), labels=_LABELS, eps=eps)
    weights = _weights(scale, bias)
    return node.make(
        module,
        x,
        weights=weights,
        affine=bool(weights),
        eps=eps,
        num_features=scale.size,
        track_running_stats=False,
    )


@translates("GroupNormalization", since=18)
def group_norm(node: Node) -> Value:
    """Translate to nn.GroupNorm, or to F.group_norm if weights are not constant; older files have one per group."""
    x, groups, eps = node.input(0), node.number("num_groups", 0), node.real("epsilon", 1e-5)
    _check_floating(x)
    shape, weights_of = x.shape_as() or (0, 0), node.input(1).tensor
    channels, scale, bias = x.tensor.shape[1] if x.tensor is not None else None, node.array(1), node.array(2)
    if weights_of is not None and weights_of.shape == (groups,) != (channels,):
        rows = reshaped(node, x, (shape[0], groups, -1))
        rows = node.make("F.instance_norm", rows, node.input(1), node.input(2), labels=_LABELS, eps=eps)
        return reshaped(node, rows, shape)
    if scale is None or bias is None or channels is None or not scale.dtype == bias.dtype == x.dtype:
        return node.make("F.group_norm", x, node.input(1), node.input(2), labels=_LABELS, num_groups=groups, eps=eps)
    weights = _weights(scale, bias)
    return node.make(
        "nn.GroupNorm",
        x,
        weights=weights,
        affine=bool(weights),
        eps=eps,
        num_groups=groups,
        num_channels=channels,
    )


def _check_floating(x: Value) -> None:
    if x.tensor is not None:
        tensor(x.tensor, "input", FLOATING)


def _weights(scale: Array, bias: Array) -> dict[str, Array]:
    """Return the weights; none if they are ones and zeros, which exporters write for a module without weights."""
    is_plain = (scale == 1).all() and (bias == 0).all()
    return {} if is_plain else {"weight": scale, "bias": bias}


@translates("LRN")
def local_response_norm(node: Node) -> Value:
    """Translate to nn.LocalResponseNorm; for an even size ONNX has the extra channel behind, PyTorch in front."""
    x, size = node.input(0), node.number("size", 0)
    given: dict[str, Any] = {
        "alpha": node.real("alpha", 1e-4),
        "beta": node.real("beta", 0.75),
        "k": node.real("bias", 1.0),
    }
    if size % 2:
        return node.make("nn.LocalResponseNorm", x, size=size, **given)
    y = node.make("nn.LocalResponseNorm", node.make("torch.flip", x, dims=(1,)), size=size, **given)
    return node.make("torch.flip", y, dims=(1,))


@translates("LpNormalization")
def lp_norm(node: Node) -> Value:
    """Divide x by the norm of its row; zeros where that is zero."""
    x, axis, p = node.input(0), node.number("axis", -1), node.number("p", 2)
    if p not in (1, 2):
        raise ParameterError("p does not fit", found=p, expected="1 or 2")
    wide = widened(node, x)
    size = node.make("torch.abs" if p == 1 else "torch.square", wide)
    length = node.make("torch.sum", size, dim=(axis,), keepdim=True)
    length = length if p == 1 else node.make("torch.sqrt", length)
    y = node.make("torch.div", wide, length)
    zero = node.make("torch.eq", length, other=0.0)
    return in_dtype_of(node, node.make("Tensor.masked_fill", y, zero, value=0.0), x)


@translates("MeanVarianceNormalization")
def mean_variance(node: Node) -> Value:
    """Translate to (x - mean) / (deviation + 1e-9) over axes."""
    x, axes = node.input(0), node.numbers("axes", (0, 2, 3))
    wide = widened(node, x)
    centred = node.make("torch.sub", wide, node.make("torch.mean", wide, dim=axes, keepdim=True))
    variance = node.make("torch.mean", node.make("torch.square", centred), dim=axes, keepdim=True)
    deviation = node.make("torch.add", node.make("torch.sqrt", variance), other=1e-9)
    return in_dtype_of(node, node.make("torch.div", centred, deviation), x)


@translates("RMSNormalization", since=23)
@translates("SimplifiedLayerNormalization")
@translates("SimplifiedLayerNormalization", domain=MICROSOFT)
def rms_norm(node: Node) -> list[Value]:
    """Translate to F.rms_norm if the weight covers the axes; else to x / sqrt(mean(x**2) + epsilon) * scale."""
    x, scale, eps = node.input(0), node.input(1), node.real("epsilon", 1e-5)
    shape = _trailing(node, scale)
    if shape is not None and len(node.outputs) == 1:
        return [rms_normed(node, x, scale, shape, eps)]
    wide = widened(node, x)
    mean = node.make("torch.mean", node.make("torch.square", wide), dim=_axes(node), keepdim=True)
    inverse = node.make("torch.rsqrt", node.make("torch.add", mean, other=eps))
    y = node.make("torch.mul", node.make("torch.mul", wide, inverse), widened(node, scale))
    results = in_dtype_of(node, y, x), _statistic(node, inverse)
    return node.results(results, ("the input normalised", "the inverse deviation"))


def _statistic(node: Node, value: Value) -> Value:
    """Return a statistic in float32, also that of float64."""
    return value if value.dtype == np.float32 else node.make("Tensor.to", value, dtype="torch.float")


def rms_normed(node: Node, x: Value, scale: Value, shape: tuple[int, ...], eps: float) -> Value:
    """Append nn.RMSNorm with a stored weight, or F.rms_norm."""
    weight = scale.constant
    if weight is None or weight.dtype != x.dtype:
        return node.make("F.rms_norm", x, scale, labels=_LABELS[:2], normalized_shape=shape, eps=eps)
    return node.make(
        "nn.RMSNorm", x, weights={"weight": weight}, elementwise_affine=True, eps=eps, normalized_shape=shape
    )


# onnxruntime knows it since version 1, ONNX since version 17.
@translates("LayerNormalization")
def layer_norm(node: Node) -> list[Value]:
    """Translate to nn.LayerNorm if the weights cover the axes; else, and for the statistics, to means and products."""
    x, scale, bias, eps = node.input(0), node.input(1), node.optional(2), node.real("epsilon", 1e-5)
    _check_floating(x)
    shape = _trailing(node, scale, *(() if bias is None else (bias,)))
    if shape is not None and len(node.outputs) == 1:
        return [layer_normed(node, x, scale, bias, shape, eps)]
    wide, axes = widened(node, x), _axes(node)
    mean = node.make("torch.mean", wide, dim=axes, keepdim=True)
    centred = node.make("torch.sub", wide, mean)
    variance = node.make("torch.mean", node.make("torch.square", centred), dim=axes, keepdim=True)
    inverse = node.make("torch.rsqrt", node.make("torch.add", variance, other=eps))
    if shape is not None:
        y = layer_normed(node, x, scale, bias, shape, eps)
    else:
        y = node.make("torch.mul", node.make("torch.mul", centred, inverse), widened(node, scale))
        y = in_dtype_of(node, y if bias is None else node.make("torch.add", y, widened(node, bias)), x)
    results = y, _statistic(node, mean), _statistic(node, inverse)
    return node.results(results, ("the input normalised", "the mean", "the inverse deviation"))


def layer_normed(node: Node, x: Value, scale: Value, bias: Value | None, shape: tuple[int, ...], eps: float) -> Value:
    """Append nn.LayerNorm with stored weights, or F.layer_norm."""
    weight, shift = scale.constant, None if bias is None else bias.constant
    if weight is None or (bias is not None and shift is None) or weight.dtype != x.dtype:
        operands = [value for value in (x, scale, bias) if value is not None]
        labels = _LABELS[: len(operands)]
        return node.make("F.layer_norm", *operands, labels=labels, normalized_shape=shape, eps=eps)
    weights = {"weight": weight, "bias": np.zeros_like(weight) if shift is None else shift}
    return node.make("nn.LayerNorm", x, weights=weights, elementwise_affine=True, eps=eps, normalized_shape=shape)


def _axes(node: Node) -> tuple[int, ...]:
    """Return the normalised axes, which follow attribute ``axis``."""
    axis = node.number("axis", -1)
    return tuple(range(axis, node.rank() if axis >= 0 else 0))


def _trailing(node: Node, *weights: Value) -> tuple[int, ...] | None:
    """Return the sizes of the normalised axes; None if they are unknown, or the weights do not cover them."""
    x, first = node.input(0).tensor, weights[0].tensor
    if x is None or first is None:
        return None
    trailing = x.shape[checked_axis(node.number("axis", -1), x.rank) :]
    if len(trailing) == first.rank and 1 not in first.shape:  # an unknown size must be that of the weights
        trailing = tuple(own if size is None else size for size, own in zip(trailing, first.shape, strict=True))
    if any(each.tensor is None or each.tensor.shape != trailing for each in weights):
        return None
    shape = tuple(size for size in trailing if size is not None)
    return shape if len(shape) == len(trailing) else None
