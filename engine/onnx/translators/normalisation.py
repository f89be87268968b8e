"""Normalisation."""

from __future__ import annotations

from engine.errors import ParameterError
from engine.onnx.node import Node
from engine.onnx.registry import translates
from engine.onnx.value import Value

_MODULES = {2: "nn.BatchNorm1d", 3: "nn.BatchNorm1d", 4: "nn.BatchNorm2d", 5: "nn.BatchNorm3d"}


@translates("BatchNormalization")
def batch_norm(node: Node) -> Value | list[Value]:
    """nn.BatchNorm with stored statistics."""
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
@translates("GroupNormalization", since=18)
@translates("LRN", "LpNormalization", "MeanVarianceNormalization")
@translates("RMSNormalization", since=23)
def as_it_is(node: Node) -> list[Value]:
    """ONNX's own, most of which another layer computes."""
    return node.same()


@translates("LayerNormalization", since=17)
def layer_norm(node: Node) -> Value | list[Value]:
    """nn.LayerNorm where only the result is used and the weights cover the axes."""
    x, scale, bias = node.input(0), node.array(1), node.array(2)
    if x.tensor is None or any(node.outputs[1:]) or scale is None or (node.is_given(2) and bias is None):
        return node.same()
    axis = node.number("axis", -1)
    trailing = x.tensor.shape[axis:] if -x.tensor.rank <= axis < x.tensor.rank else ()
    if len(trailing) == scale.ndim and 1 not in scale.shape:  # an open size can only be that of the weights
        trailing = tuple(own if size is None else size for size, own in zip(trailing, scale.shape, strict=True))
    shape = tuple(size or 0 for size in trailing)
    if not shape or None in trailing or scale.shape != shape or (bias is not None and bias.shape != shape):
        return node.same()
    if scale.dtype != x.tensor.dtype:
        return node.same()
    return node.make(
        "nn.LayerNorm",
        x,
        weights={"weight": scale} if bias is None else {"weight": scale, "bias": bias},
        elementwise_affine=True,
        eps=node.real("epsilon", 1e-5),
        normalized_shape=shape,
    )
