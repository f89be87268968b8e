"""Translators of matrix products."""

from __future__ import annotations

import numpy as np

from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import translates
from engine.onnx.translation.value import Value


@translates("Gemm", since=1)
def gemm(node: Node) -> Value:
    """Translate to nn.Linear with a stored matrix and bias; else to F.linear, torch.addmm or torch.mm."""
    weight, bias, alpha, beta = node.array(1), node.array(2), node.real("alpha", 1.0), node.real("beta", 1.0)
    is_plain = alpha == beta == 1.0 and not node.number("transA", 0) and node.input(0).rank == 2
    c = node.optional(2)
    if weight is not None and weight.ndim == 2 and weight.dtype.kind == "f" and is_plain:
        # A transposed view, not a copy: weights are packed for kernels from the data of the file.
        weight = weight if node.number("transB", 0) else weight.T
        columns = weight.shape[0]
        if not node.is_given(2) or (bias is not None and bias.size == columns and bias.shape[-1:] == (columns,)):
            return node.make(
                "nn.Linear",
                node.input(0),
                weights={"weight": weight} if bias is None else {"weight": weight, "bias": bias.reshape(-1)},
                bias=bias is not None,
                in_features=weight.shape[1],
                out_features=columns,
            )
    if is_plain and node.number("transB", 0):
        return node.make("F.linear", node.input(0), node.input(1), *([] if c is None else [c]))
    a, b = (
        node.make("torch.permute", each, dims=(1, 0)) if node.number(key, 0) else each
        for each, key in ((node.input(0), "transA"), (node.input(1), "transB"))
    )
    if c is None and alpha == 1:
        return node.make("torch.mm", a, b)
    c, beta = (node.constant(np.zeros((), a.dtype)), 0.0) if c is None else (c, beta)
    return node.make("torch.addmm", c, a, b, alpha=alpha, beta=beta)


@translates("MatMul")
def matmul(node: Node) -> Value:
    """Translate to nn.Linear if the second matrix is stored; else to torch.matmul, which broadcasts like ONNX."""
    weight, x = node.array(1), node.input(0)
    is_stored = weight is not None and weight.ndim == 2 and weight.dtype.kind == "f" and x.constant is None
    if weight is not None and is_stored and x.dtype == weight.dtype and x.rank:
        rows, columns = weight.shape
        stored = {"weight": weight.T}
        return node.make("nn.Linear", x, weights=stored, bias=False, in_features=rows, out_features=columns)
    return node.make("torch.matmul", node.input(0), node.input(1))


@translates("Einsum", since=12)
def einsum(node: Node) -> Value:
    """Translate to torch.einsum."""
    operands = [value for value in node.inputs if value is not None]
    return node.make("torch.einsum", *operands, equation=node.text("equation", "").replace(" ", ""))
