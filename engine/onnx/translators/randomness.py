"""Numbers at random: shapes and dtypes are as the file says, the draws are this process's own."""

from __future__ import annotations

from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import translates
from engine.onnx.translation.value import Value
from engine.onnx.translators.precision import in_dtype_of
from engine.onnx.translators.shape import in_dtype


@translates("RandomNormal", "RandomUniform")
def of_shape(node: Node) -> Value:
    """Numbers of a given shape."""
    is_normal = node.type == "RandomNormal"
    shape = node.numbers("shape")
    base = node.make("torch.randn" if is_normal else "torch.zeros", size=shape, dtype="torch.double")
    return in_dtype(node, _drawn(node, base, is_normal=is_normal), "dtype", 1)


@translates("RandomNormalLike", "RandomUniformLike")
def of_input(node: Node) -> Value:
    """Numbers in the shape of the input."""
    is_normal = node.type == "RandomNormalLike"
    base = node.make("torch.randn_like" if is_normal else "torch.zeros_like", node.input(0), dtype="torch.double")
    return _cast(node, _drawn(node, base, is_normal=is_normal))


@translates("Bernoulli", since=15)
def bernoulli(node: Node) -> Value:
    """1 with the probability that the input gives, else 0."""
    return _cast(node, node.make("aten::bernoulli", node.input(0)))


@translates("Multinomial")
def multinomial(node: Node) -> Value:
    """Classes drawn from every row of logarithms of weights."""
    x = node.make("Tensor.to", node.input(0), dtype="torch.double")
    top = node.make("torch.amax", x, dim=(1,), keepdim=True, allow_empty=True)
    weights = node.make("torch.exp", node.make("torch.sub", x, top))
    count = node.number("sample_size", 1)
    drawn = node.make("aten::multinomial", weights, num_samples=count, replacement=True)
    return in_dtype(node, drawn, "dtype", 6)


def _drawn(node: Node, base: Value, *, is_normal: bool) -> Value:
    if not is_normal:
        return node.make("aten::uniform", base, low=node.real("low", 0.0), high=node.real("high", 1.0))
    wide = node.make("torch.mul", base, other=node.real("scale", 1.0))
    return node.make("torch.add", wide, other=node.real("mean", 0.0))


def _cast(node: Node, y: Value) -> Value:
    if "dtype" in node.attributes:
        return in_dtype(node, y, "dtype", 1)
    return in_dtype_of(node, y, node.input(0))
