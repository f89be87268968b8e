"""Translators of operators that have a layer of the same name, or one under another name."""

from __future__ import annotations

from engine.layers.onnx.operands.dtypes import onnx_dtype
from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import translates
from engine.onnx.translation.value import Value
from engine.onnx.translators.shape import torch_name


@translates("ConvInteger", since=10)
@translates("NonMaxSuppression", since=10)
@translates("MatMulInteger", since=10)
@translates("SequenceAt", "SequenceInsert", "SequenceErase", "SequenceLength", since=11)
@translates("SplitToSequence", since=11)
@translates("QuantizeLinear", "DequantizeLinear", since=10)
@translates("LinearAttention", since=27)
def as_it_is(node: Node) -> list[Value]:
    """Keep ONNX's layer."""
    return node.same()


@translates("Det", since=11)
def determinant(node: Node) -> Value:
    """Translate to aten::linalg_det."""
    return node.make("aten::linalg_det", node.input(0))


@translates("BitCast", since=26)
def bit_cast(node: Node) -> Value:
    """Translate to prims::view_element_type."""
    dtype = torch_name(onnx_dtype(node.number("to", 0)))
    return node.make("prims::view_element_type", node.input(0), dtype=dtype)


@translates("Optional", since=15)
def optional(node: Node) -> Value:
    """Return the input; None without one."""
    return node.optional(0) or node.make("prim::Constant")


@translates("OptionalGetElement", since=15)
def element(node: Node) -> Value:
    """Translate to aten::_unwrap_optional."""
    return node.make("aten::_unwrap_optional", node.input(0))


@translates("OptionalHasElement", since=15)
def has_element(node: Node) -> Value:
    """Translate to aten::__isnot__, as in ``value is not None``."""
    value = node.optional(0)
    return node.make("aten::__isnot__", *([] if value is None else [value]))


@translates("SequenceConstruct", "SequenceEmpty", since=11)
def sequence(node: Node) -> Value:
    """Translate to prim::ListConstruct."""
    return node.make("prim::ListConstruct", *[value for value in node.inputs if value is not None])
