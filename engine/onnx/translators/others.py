"""Operators that are ONNX's own layers under their own names."""

from __future__ import annotations

from engine.onnx.node import Node
from engine.onnx.registry import translates
from engine.onnx.value import Value


@translates("DFT", "STFT", "MelWeightMatrix", "HannWindow", "HammingWindow", "BlackmanWindow", since=17)
@translates("SequenceAt", "SequenceInsert", "SequenceErase", "SequenceLength", since=11)
@translates("SequenceEmpty", "ConcatFromSequence", "SplitToSequence", since=11)
@translates("OptionalGetElement", "OptionalHasElement", since=15)
@translates("QuantizeLinear", "DequantizeLinear", "QLinearMatMul", "QLinearConv", since=10)
@translates("DynamicQuantizeLinear", since=11)
@translates("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial")
@translates("Bernoulli", since=15)
@translates("Attention", "RotaryEmbedding", since=23)
@translates("LinearAttention", since=27)
def as_it_is(node: Node) -> list[Value]:
    """ONNX's own."""
    return node.same()


@translates("LSTM", "GRU", "RNN")
def recurrent(node: Node) -> list[Value]:
    """ONNX's own, which tells its operands apart by their shapes."""
    return node.same(inputs=[value for value in node.inputs if value is not None], output_sequence=None)


@translates("Optional", since=15)
def optional(node: Node) -> list[Value]:
    """ONNX's own; of what type it would be does not matter."""
    return (
        node.same(type=None) if node.inputs else node.builder.add("Optional", node.name, [], outputs=list(node.outputs))
    )


@translates("SequenceConstruct", since=11)
def sequence(node: Node) -> Value:
    """A list."""
    return node.make("prim::ListConstruct", *[value for value in node.inputs if value is not None])
