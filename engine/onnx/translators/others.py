"""Operators that are ONNX's own layers under their own names."""

from __future__ import annotations

from engine.onnx.node import Node
from engine.onnx.registry import translates
from engine.onnx.value import Value


@translates("LSTM", "GRU", "RNN")
@translates("DFT", "STFT", "MelWeightMatrix", "HannWindow", "HammingWindow", "BlackmanWindow", since=17)
@translates("SequenceAt", "SequenceInsert", "SequenceErase", "SequenceLength", since=11)
@translates("SequenceEmpty", "ConcatFromSequence", "SplitToSequence", since=11)
@translates("Optional", "OptionalGetElement", "OptionalHasElement", since=15)
@translates("QuantizeLinear", "DequantizeLinear", "QLinearMatMul", "QLinearConv", since=10)
@translates("DynamicQuantizeLinear", since=11)
@translates("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial")
@translates("Bernoulli", since=15)
@translates("Attention", "RotaryEmbedding", since=23)
def as_it_is(node: Node) -> list[Value]:
    """ONNX's own."""
    return node.same()


@translates("SequenceConstruct", since=11)
def sequence(node: Node) -> Value:
    """A list."""
    return node.make("prim::ListConstruct", *[value for value in node.inputs if value is not None])
