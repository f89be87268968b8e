"""Translators of operators that have a layer of the same name."""

from __future__ import annotations

from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import translates
from engine.onnx.translation.value import Value


@translates("ConvInteger", since=10)
@translates("Det", since=11)
@translates("NonMaxSuppression", since=10)
@translates("MatMulInteger", since=10)
@translates("MaxRoiPool")
@translates("BitCast", since=26)
@translates("SequenceAt", "SequenceInsert", "SequenceErase", "SequenceLength", since=11)
@translates("SequenceEmpty", "SplitToSequence", since=11)
@translates("OptionalGetElement", "OptionalHasElement", since=15)
@translates("QuantizeLinear", "DequantizeLinear", since=10)
@translates("LinearAttention", since=27)
def as_it_is(node: Node) -> list[Value]:
    """Keep ONNX's layer."""
    return node.same()


@translates("Optional", since=15)
def optional(node: Node) -> list[Value]:
    """Keep ONNX's layer without its type attribute, which is not used."""
    return (
        node.same(type=None) if node.inputs else node.builder.add("Optional", node.name, [], outputs=list(node.outputs))
    )


@translates("SequenceConstruct", since=11)
def sequence(node: Node) -> Value:
    """Translate to prim::ListConstruct."""
    return node.make("prim::ListConstruct", *[value for value in node.inputs if value is not None])
