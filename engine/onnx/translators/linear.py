"""Translators of matrix products."""

from __future__ import annotations

from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import translates
from engine.onnx.translation.value import Value


@translates("Gemm", since=1)
def gemm(node: Node) -> Value | list[Value]:
    """Translate to nn.Linear if the second matrix and the bias are stored."""
    weight, bias = node.array(1), node.array(2)
    is_plain = node.real("alpha", 1.0) == node.real("beta", 1.0) == 1.0 and not node.number("transA", 0)
    if weight is None or weight.ndim != 2 or not is_plain or node.input(0).rank != 2 or weight.dtype.kind != "f":
        return node.same(broadcast=None)
    # A transposed view, not a copy: weights are packed for kernels from the data of the file.
    weight = weight if node.number("transB", 0) else weight.T
    if node.is_given(2):
        if bias is None or bias.size != weight.shape[0] or bias.shape[-1:] != (weight.shape[0],):
            return node.same(broadcast=None)
        bias = bias.reshape(-1)
    return node.make(
        "nn.Linear",
        node.input(0),
        weights={"weight": weight} if bias is None else {"weight": weight, "bias": bias},
        bias=bias is not None,
        in_features=weight.shape[1],
        out_features=weight.shape[0],
    )


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
