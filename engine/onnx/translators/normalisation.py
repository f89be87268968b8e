"""Translators of normalisation."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.errors import ParameterError
from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import translates
from engine.onnx.translation.value import Value
from engine.onnx.translators.precision import in_dtype_of, widened
from engine.tensor import Array

_LABELS = ("input", "weight", "bias")
_INSTANCES = {3: "nn.InstanceNorm1d", 4: "nn.InstanceNorm2d", 5: "nn.InstanceNorm3d"}
_MODULES = {2: "nn.BatchNorm1d", 3: "nn.BatchNorm1d", 4: "nn.BatchNorm2d", 5: "nn.BatchNorm3d"}


@translates("BatchNormalization")
def batch_norm(node: Node) -> Value | list[Value]:
    """Translate to nn.BatchNorm with stored statistics."""
    if node.number("training_mode", 0):
        return node.same()
    arrays = [node.array(k) for k in range(1, 5)]
    module = _MODULES.get(node.input(0).rank or 0)
    dtype = node.dtype()
    if node.number("spatial", 1) != 1:
        raise ParameterError("statistics of every element are not computed", found="spatial=0", expected="1")
    scale, bias, mean, var = arrays
    if module is None or scale is None or bias is None or mean is None or var is None:
        return node.same()[:1]
    if any(each.ndim != 1 or each.dtype != dtype for each in (scale, bias, mean, var)):
        return node.same()[:1]
    return node.make(
        module,
        node.input(0),
        weights={"weight": scale, "bias": bias, "running_mean": mean, "running_var": var},
        affine=True,
        eps=node.real("epsilon", 1e-5),
        num_features=scale.size,
    )


@translates("InstanceNormalization")
def instance_norm(node: Node) -> Value | list[Value]:
    """Translate to nn.InstanceNorm, or to F.instance_norm if the weights are not constant."""
    x, eps = node.input(0), node.real("epsilon", 1e-5)
    if not _have_its_dtype(x, node.input(1), node.input(2)):
        return node.same()
    module, scale, bias = _INSTANCES.get(x.rank or 0), node.array(1), node.array(2)
    if scale is None or bias is None or module is None:
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
def group_norm(node: Node) -> Value | list[Value]:
    """Translate to nn.GroupNorm, or to F.group_norm if weights are not constant; older files have one per group."""
    x, groups, eps = node.input(0), node.number("num_groups", 0), node.real("epsilon", 1e-5)
    channels = x.tensor.shape[1] if x.tensor is not None and x.tensor.rank > 1 else None
    if not _have_its_dtype(x, node.input(1), node.input(2)) or channels is None or groups < 1 or channels % groups:
        return node.same()
    scale, bias = node.array(1), node.array(2)
    if scale is None or bias is None:
        if any(each.tensor is None or each.tensor.shape != (channels,) for each in (node.input(1), node.input(2))):
            return node.same()
        return node.make("F.group_norm", x, node.input(1), node.input(2), labels=_LABELS, num_groups=groups, eps=eps)
    if any(each.shape not in ((channels,), (groups,)) for each in (scale, bias)):
        return node.same()
    weights = _weights(*(each.repeat(channels // each.size) for each in (scale, bias)))
    return node.make(
        "nn.GroupNorm",
        x,
        weights=weights,
        affine=bool(weights),
        eps=eps,
        num_groups=groups,
        num_channels=channels,
    )


def _have_its_dtype(x: Value, *weights: Value) -> bool:
    return x.tensor is not None and all(
        each.tensor is not None and each.tensor.dtype == x.tensor.dtype and each.tensor.rank == 1 for each in weights
    )


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
def as_it_is(node: Node) -> list[Value]:
    """Keep ONNX's layer."""
    return node.same()


@translates("LayerNormalization", since=17)
def layer_norm(node: Node) -> Value | list[Value]:
    """Translate to nn.LayerNorm if only the first result is used and the weights cover the axes."""
    x, scale, bias = node.input(0), node.array(1), node.array(2)
    if x.tensor is None or any(node.outputs[1:]) or scale is None or (node.is_given(2) and bias is None):
        return node.same()
    axis = node.number("axis", -1)
    trailing = x.tensor.shape[axis:] if -x.tensor.rank <= axis < x.tensor.rank else ()
    if len(trailing) == scale.ndim and 1 not in scale.shape:  # an unknown size must be that of the weights
        trailing = tuple(own if size is None else size for size, own in zip(trailing, scale.shape, strict=True))
    shape = tuple(size or 0 for size in trailing)
    if not shape or None in trailing or scale.shape != shape or (bias is not None and bias.shape != shape):
        return node.same()
    if scale.dtype != x.tensor.dtype:
        return node.same()
    return node.make(
        "nn.LayerNorm",
        x,
        weights={"weight": scale, "bias": np.zeros_like(scale) if bias is None else bias},
        elementwise_affine=True,
        eps=node.real("epsilon", 1e-5),
        normalized_shape=shape,
    )
