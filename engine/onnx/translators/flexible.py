"""Flexible attention: subgraphs of the file change scores and probabilities."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.onnx.operands.dtypes import onnx_dtype
from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import translates
from engine.onnx.translation.value import Value
from engine.onnx.translators.control import graph_of
from engine.tensor import DType

_DOMAIN: Final = "ai.onnx.preview"
_FLOATS: Final = (1, 10, 11, 16)


@translates("FlexAttention", domain=_DOMAIN)
def flexible_attention(node: Node) -> Value:
    """Translate to products and a softmax, with both subgraphs inlined."""
    query, key, value = (node.input(k) for k in range(3))
    heads, width = _sizes(node, query)
    groups = [_sizes(node, each)[0] for each in (key, value)]
    if groups[0] != groups[1] or not groups[0] or heads % groups[0]:
        raise ShapeError("heads do not fit each other", found=f"{heads} of {groups[0]} and {groups[1]}")
    if heads != groups[0]:
        places = node.constant(np.repeat(np.arange(groups[0]), heads // groups[0]))
        key, value = (node.make("torch.index_select", each, places, dim=1) for each in (key, value))
    precision = _precision(node, query.dtype)
    turned = node.make("torch.transpose", key, dim0=2, dim1=3)
    scores = _as(node, node.make("torch.matmul", query, turned), precision)
    scale = node.real("scale", 1 / math.sqrt(width) if width else 1.0)
    scores = _changed(node, "score_mod", node.expression(f"mul(@0,{scale!r})", scores))
    shares = _changed(node, "prob_mod", node.make("F.softmax", scores, dim=-1))
    return node.make("torch.matmul", _as(node, shares, query.dtype), value)


def _sizes(node: Node, operand: Value) -> tuple[int, int]:
    """Return the number of heads and the width of each.

    Raises:
        ShapeError: one of them is unknown.
    """
    spec = operand.tensor
    if spec is None or spec.rank != 4 or spec.shape[1] is None or spec.shape[3] is None:
        raise ShapeError(
            "heads are not known before a run", expected="[N, heads, length, width] with known heads, width"
        )
    return spec.shape[1], spec.shape[3]


def _precision(node: Node, dtype: DType | None) -> DType:
    number = node.number("softmax_precision", 11 if dtype == np.float64 else 1)
    if number not in _FLOATS:
        raise ParameterError("softmax_precision is no float", found=number, expected="one of TensorProto.DataType")
    return onnx_dtype(number)


def _as(node: Node, x: Value, dtype: DType | None) -> Value:
    names = {"float16": "torch.half", "float32": "torch.float", "float64": "torch.double", "bfloat16": "torch.bfloat16"}
    if dtype is None or x.dtype == dtype:
        return x
    return node.make("Tensor.to", x, dtype=names[dtype.name])


def _changed(node: Node, name: str, scores: Value) -> Value:
    """Apply the subgraph of an attribute to scores; return them unchanged if there is none."""
    if name not in node.attributes:
        return scores
    results = node.inline(graph_of(node, name), (scores,))
    if len(results) != 1:
        raise ParameterError(f"{name} gives another number of tensors", found=len(results), expected=1)
    before, after = scores.tensor, results[0].tensor
    if before is not None and after is not None and (before.rank, before.dtype) != (after.rank, after.dtype):
        raise ShapeError(f"{name} gives a tensor of another kind", found=str(after), expected=str(before))
    return results[0]
