"""Translators of elements read and written by position; negative positions count from the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from engine.errors import ParameterError, UnsupportedOperatorError
from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import translates
from engine.onnx.translation.value import Value


def indices(node: Node, slots: Sequence[Value | None]) -> Value:
    """Return the list of an index tensor for each axis, None for whole axes."""
    given = [node.make("pnnx.Expression", expr="None") if each is None else each for each in slots]
    return node.make("prim::ListConstruct", *given)


def numbers(node: Node, x: Value, axis: int, behind: int = 0) -> Value:
    """Return the positions along an axis of a value, with axes of size 1 behind them."""
    size = None if x.tensor is None else x.tensor.shape[axis]
    if size is not None:
        return node.constant(np.arange(size).reshape(-1, *(1,) * behind))
    end = node.make("pnnx.Expression", x, expr=f"size(@0,{axis})")
    found = node.make("torch.arange", end, labels=("end",), dtype="torch.long")
    return node.make("Tensor.reshape", found, shape=(-1, *(1,) * behind)) if behind else found


def rows(node: Node, index: Value, lead: Sequence[Value] = ()) -> Value:
    """Return rows of indices as a list of an index tensor for each axis.

    Args:
        lead: index tensors of the axes before these.

    Raises:
        UnsupportedOperatorError: there are such axes and the length of the rows is not known before a run.
    """
    count = index.tensor.shape[-1] if index.tensor is not None and index.rank else None
    if not count:
        if lead or count == 0:
            raise UnsupportedOperatorError("the rows of indices have no known length")
        return node.make("torch.unbind", index, dim=-1)
    return indices(node, [*lead, *(node.make("Tensor.select", index, dim=-1, index=k) for k in range(count))])


@translates("GatherElements", since=11)
def gather_elements(node: Node) -> Value:
    """Translate to torch.gather."""
    operands, labels = (node.input(0), node.input(1)), ("input", "index")
    return node.make("torch.gather", *operands, labels=labels, dim=node.number("axis", 0), counts_back=True)


@translates("GatherND", since=11)
def gather_nd(node: Node) -> Value:
    """Translate to Tensor.index, after the own positions of each batch."""
    x, index, batches = node.input(0), node.input(1), node.number("batch_dims", 0)
    lead = [numbers(node, x, axis, node.rank(1) - 2 - axis) for axis in range(batches)]
    return node.make("Tensor.index", x, rows(node, index, lead))


_REDUCTIONS: Final = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def reduction_of(node: Node) -> str | None:
    """Return PyTorch's name of the reduction; None if elements are replaced."""
    reduction = node.text("reduction", "none")
    if reduction not in ("none", *_REDUCTIONS):
        raise ParameterError("unknown reduction", found=reduction[:80], expected=f"none, {', '.join(_REDUCTIONS)}")
    return _REDUCTIONS.get(reduction)


@translates("Scatter")
@translates("ScatterElements", since=11)
def scatter_elements(node: Node) -> Value:
    """Translate to torch.scatter or torch.scatter_reduce."""
    reduce, operands = reduction_of(node), (node.input(0), node.input(1), node.input(2))
    params: dict[str, Any] = {"dim": node.number("axis", 0), "counts_back": True}
    if reduce is not None:
        params |= {"reduce": reduce, "include_self": True}
    type = "torch.scatter" if reduce is None else "torch.scatter_reduce"
    return node.make(type, *operands, labels=("input", "index", "src"), **params)


@translates("ScatterND", since=11)
def scatter_nd(node: Node) -> Value:
    """Translate to Tensor.index_put."""
    index, reduce = rows(node, node.input(1)), reduction_of(node)
    params: dict[str, Any] = {} if reduce is None else {"reduce": reduce}
    return node.make("Tensor.index_put", node.input(0), index, node.input(2), **params)


@translates("TensorScatter", since=24)
def tensor_scatter(node: Node) -> Value:
    """Translate to Tensor.index_put at the batch and, from a position of its own on, along the axis."""
    x, update, starts = node.input(0), node.input(1), node.optional(2)
    rank, axis = node.rank(), node.number("axis", -2)
    axis += rank if axis < 0 else 0
    places = numbers(node, update, axis)
    if starts is not None:
        places = node.make("torch.add", node.make("torch.unsqueeze", starts, dim=1), places)
    if node.text("mode", "linear") == "circular":
        places = node.make("pnnx.Expression", places, x, expr=f"remainder(@0,size(@1,{axis}))")
    index = indices(node, [numbers(node, x, 0, 1), *(None,) * (axis - 1), places])
    order = (0, axis, *(k for k in range(1, rank) if k != axis))
    return node.make("Tensor.index_put", x, index, node.make("torch.permute", update, dims=order))


@translates("ReverseSequence", since=10)
def reverse_sequence(node: Node) -> Value:
    """Translate to aten::take_along_dim: the first steps of each sequence backwards, the rest as they are."""
    x, lengths, rank = node.input(0), node.input(1), node.rank()
    batch, time = node.number("batch_axis", 1), node.number("time_axis", 0)
    if {batch, time} != {0, 1} or rank < 2:
        raise ParameterError("axes do not fit", found=f"batch_axis {batch}, time_axis {time}", expected="0 and 1")
    steps = numbers(node, x, time, rank - 1 - time)
    lengths = node.make("Tensor.reshape", lengths, shape=(-1, *(1,) * (rank - 1 - batch)))
    backwards = node.make("pnnx.Expression", lengths, steps, expr="sub(sub(@0,1),@1)")
    places = node.make("torch.where", node.make("torch.lt", steps, lengths), backwards, steps)
    return node.make("aten::take_along_dim", x, places, labels=("input", "indices"), dim=time)
