"""Reductions."""

from __future__ import annotations

from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import translates
from engine.onnx.translation.value import Value

_TORCH = {
    "ReduceMean": "torch.mean", "ReduceSum": "torch.sum", "ReduceMax": "torch.amax", "ReduceMin": "torch.amin",
}  # fmt: skip


@translates(
    "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
    "ReduceLogSumExp", "ReduceSumSquare",
)  # fmt: skip
def reduction(node: Node) -> Value | list[Value]:
    """torch's own for floats over axes the file names; ONNX's own for all else."""
    axes = node.integers(1, "axes")
    if node.is_given(1) and axes is None:
        return node.same()
    rank, dtype = node.input(0).rank, node.dtype()
    empty = not axes
    if empty and node.number("noop_with_empty_axes", 0):
        return node.input(0) if node.type in _TORCH or node.type == "ReduceProd" else _own(node, ())
    type = _TORCH.get(node.type)
    if type is None or dtype is None or dtype.kind != "f" or rank is None:
        return _own(node, axes)
    dims = tuple(range(rank)) if empty else axes or ()
    if not dims or len({d % rank for d in dims}) != len(dims) or not all(-rank <= d < rank for d in dims):
        return _own(node, axes)
    sizes = [node.input(0).tensor.shape[d] for d in dims]  # type: ignore[union-attr]  # its rank is known
    if node.type in ("ReduceMax", "ReduceMin") and not all(
        sizes
    ):  # of no elements PyTorch has no extreme, ONNX has one
        return _own(node, axes)
    keeps = bool(node.number("keepdims", 1))
    if type == "torch.mean" and keeps and 3 <= rank <= 5 and sorted(d % rank for d in dims) == list(range(2, rank)):
        return node.make(f"nn.AdaptiveAvgPool{rank - 2}d", node.input(0), output_size=(1,) * (rank - 2))
    return node.make(type, node.input(0), dim=dims, keepdim=keeps)


@translates("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss", since=12)
def loss(node: Node) -> list[Value]:
    """ONNX's own."""
    return node.same()


def _own(node: Node, axes: tuple[int, ...] | None) -> list[Value]:
    return node.same(inputs=[node.input(0)], axes=axes or None)
