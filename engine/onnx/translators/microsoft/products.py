"""Matrix products and convolutions fused with neighbouring operators."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.errors import ParameterError
from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import MICROSOFT, Results, translates
from engine.onnx.translation.value import Value, constant
from engine.onnx.translators.convolution import conv
from engine.onnx.translators.linear import gemm


@translates("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(node: Node) -> Value | None:
    """Translate to alpha * a @ b with optional transposes."""
    if node.number("transBatchA", 0) or node.number("transBatchB", 0):
        return None
    a = turned(node, node.input(0)) if node.number("transA", 0) else node.input(0)
    b = turned(node, node.input(1)) if node.number("transB", 0) else node.input(1)
    product = node.make("torch.matmul", a, b)
    alpha = node.real("alpha", 1.0)
    return product if alpha == 1.0 else node.expression(f"mul(@0,{alpha!r})", product)


def turned(node: Node, x: Value) -> Value:
    if x.constant is not None and x.constant.ndim == 2:
        return constant(np.ascontiguousarray(x.constant.T))
    return node.make("torch.transpose", x, dim0=-2, dim1=-1)


def _activated(node: Node, y: Value) -> Value:
    """Apply the fused activation.

    Raises:
        ParameterError: there is no such activation.
    """
    name, given = node.text("activation", ""), node.attributes.get("activation_params", ())
    plain = {"": None, "Relu": "nn.ReLU", "Sigmoid": "nn.Sigmoid", "Tanh": "nn.Tanh"}
    if name in plain:
        type = plain[name]
        return y if type is None else node.make(type, y)
    numbers = [each for each in given if isinstance(each, (int, float))]
    if name == "LeakyRelu" and len(numbers) == 1:
        return node.make("nn.LeakyReLU", y, negative_slope=float(numbers[0]))
    if name == "Clip" and len(numbers) == 2:
        return node.make("torch.clamp", y, min=float(numbers[0]), max=float(numbers[1]))
    raise ParameterError("unknown fused activation", found=name)


@translates("FusedConv", domain=MICROSOFT)
def fused_conv(node: Node) -> Value:
    """Translate to a convolution, an optional sum and an activation."""
    inner = standard(node, "Conv", ("activation", "activation_params"), node.inputs[:3])
    y = first(conv(inner))
    if node.is_given(3):
        y = node.expression("add(@0,@1)", y, node.input(3))
    return _activated(node, y)


@translates("FusedGemm", domain=MICROSOFT)
def fused_gemm(node: Node) -> Value | None:
    """Translate to a product and an activation."""
    fused = [key for key in node.attributes if key.startswith("activation")]
    if len(fused) > 1:
        return None
    return _activated(node, first(gemm(standard(node, "Gemm", fused, node.inputs))))


def first(made: Results) -> Value:
    """Return the only result of an operator."""
    if made is None:
        raise ParameterError("the operator has no result")
    return made if isinstance(made, Value) else made[0]


def standard(node: Node, type: str, without: Sequence[str], inputs: Sequence[Value | None]) -> Node:
    """Return the standard operator without some attributes."""
    attributes = {key: value for key, value in node.attributes.items() if key not in without}
    return Node(
        type=type, name=node.name, domain="", version=13, inputs=inputs, attributes=attributes,
        outputs=node.outputs[:1], builder=node.builder, subgraph=node.subgraph, inline=node.inline,
    )  # fmt: skip
