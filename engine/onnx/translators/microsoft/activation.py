"""GELU operators of onnxruntime."""

from __future__ import annotations

from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import MICROSOFT, translates
from engine.onnx.translation.value import Value


@translates("Gelu", domain=MICROSOFT)
def gelu(node: Node) -> Value:
    """Translate to nn.GELU."""
    return node.make("nn.GELU", node.input(0), approximate="none")


@translates("BiasGelu", domain=MICROSOFT)
def bias_gelu(node: Node) -> Value:
    """Translate to nn.GELU of a sum."""
    return node.make("nn.GELU", node.expression("add(@0,@1)", node.input(0), node.input(1)), approximate="none")


@translates("FastGelu", domain=MICROSOFT)
def fast_gelu(node: Node) -> Value:
    """Translate to nn.GELU with the tanh approximation, of a sum if there is a bias."""
    x = node.input(0)
    x = node.expression("add(@0,@1)", x, node.input(1)) if node.is_given(1) else x
    return node.make("nn.GELU", x, approximate="tanh")


@translates("QuickGelu", domain=MICROSOFT)
def quick_gelu(node: Node) -> Value:
    """Translate to x * sigmoid(alpha * x)."""
    x, alpha = node.input(0), node.real("alpha", 1.702)
    gate = node.make("nn.Sigmoid", node.expression(f"mul(@0,{alpha!r})", x))
    return node.expression("mul(@0,@1)", x, gate)
