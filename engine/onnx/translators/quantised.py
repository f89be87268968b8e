"""Translators of quantised products: integer sums, their scale in float32, and QuantizeLinear, which rounds once."""

from __future__ import annotations

import numpy as np

from engine.layers.operands.fitting import check_shape
from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import translates
from engine.onnx.translation.value import Value, constant


@translates("QLinearMatMul", since=10)
def quantised_matmul(node: Node) -> Value:
    """Translate to MatMulInteger, a product with the scales and QuantizeLinear."""
    a, a_scale, a_zero, b, b_scale, b_zero = (node.input(k) for k in range(6))
    labels = ("a", "b", "a_zero_point", "b_zero_point")
    sums = node.make("MatMulInteger", a, b, a_zero, b_zero, labels=labels)
    if a_scale.rank == 1 and a_scale.tensor is not None and a_scale.tensor.shape != (1,):
        a_scale = node.make("torch.unsqueeze", a_scale, dim=1)
    return _requantised(node, sums, a_scale, b_scale)


@translates("QLinearConv", since=10)
def quantised_conv(node: Node) -> Value:
    """Translate to ConvInteger with the bias, a product with the scales and QuantizeLinear."""
    x, x_scale, x_zero, w, w_scale, w_zero = (node.input(k) for k in range(6))
    operands, labels = [x, w, x_zero, w_zero], ["input", "weight", "x_zero_point", "w_zero_point"]
    if (bias := node.optional(8)) is not None:
        operands, labels = [*operands, bias], [*labels, "bias"]
    names = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    given = {name: node.attributes[name] for name in names if name in node.attributes}
    sums = node.make("ConvInteger", *operands, labels=labels, **given)
    if w_scale.tensor is not None and w_scale.tensor.shape not in ((), (1,)):
        if w.tensor is not None:
            check_shape(w_scale.tensor.shape, w.tensor.shape[:1], "w_scale does not fit")
        w_scale = node.make("Tensor.reshape", w_scale, shape=(-1, *(1,) * (node.rank(3) - 2)))
    return _requantised(node, sums, x_scale, w_scale)


@translates("DynamicQuantizeLinear", since=11)
def dynamically_quantised(node: Node) -> list[Value]:
    """Translate to QuantizeLinear to bytes over the range of the input's extremes and zero."""
    found = quantised_by_its_range(node, node.input(0))
    return node.results(found, ("the bytes", "the scale", "the zero point"))


def quantised_by_its_range(node: Node, x: Value) -> tuple[Value, Value, Value]:
    """Return the bytes of a value, their scale and their zero point."""
    ends = (node.make(f"torch.{name}", x, allow_empty=True) for name in ("amin", "amax"))
    low, high = (node.expression(f"{name}(@0,0)", end) for name, end in zip(("minimum", "maximum"), ends, strict=True))
    step = node.expression("div(sub(@1,@0),255)", low, high)
    scale = node.make("torch.where", node.make("torch.eq", step, other=0), constant(np.array(1, np.float32)), step)
    zero = node.make("QuantizeLinear", node.expression("neg(@0)", low), scale, labels=("input", "scale"))
    y = node.make("QuantizeLinear", x, scale, zero, labels=("input", "scale", "zero_point"))
    return y, scale, zero


def _requantised(node: Node, sums: Value, *scales: Value) -> Value:
    """Multiply sums with the scales of both operands over that of the result, and quantise them."""
    scales = tuple(_number(node, each) for each in (*scales, node.input(6)))
    factor = node.make("torch.div", node.make("torch.mul", scales[0], scales[1]), scales[2])
    scaled = node.expression("mul(@0,@1)", node.make("Tensor.to", sums, dtype="torch.float"), factor)
    one = constant(np.array(1, np.float32))
    return node.make("QuantizeLinear", scaled, one, node.input(7), labels=("input", "scale", "zero_point"))


def _number(node: Node, scale: Value) -> Value:
    """Return a scale; a single one as a number without axes."""
    return node.make("torch.squeeze", scale) if scale.tensor is not None and scale.tensor.shape == (1,) else scale
