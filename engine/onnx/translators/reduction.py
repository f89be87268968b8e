"""Translators of reductions and losses."""

from __future__ import annotations

from typing import Any, Final

from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import translates
from engine.onnx.translation.value import Value
from engine.onnx.translators.precision import in_dtype_of, widened
from engine.onnx.translators.shape import TORCH_NAMES
from engine.tensor import CODES

# Function of each element, reduction, function of the reduced value.
_STEPS: Final = {
    "ReduceSum": ("", "torch.sum", ""),
    "ReduceProd": ("", "torch.prod", ""),
    "ReduceMean": ("", "torch.mean", ""),
    "ReduceMax": ("", "torch.amax", ""),
    "ReduceMin": ("", "torch.amin", ""),
    "ReduceL1": ("torch.abs", "torch.sum", ""),
    "ReduceL2": ("torch.square", "torch.sum", "torch.sqrt"),
    "ReduceLogSum": ("", "torch.sum", "torch.log"),
    "ReduceLogSumExp": ("", "torch.logsumexp", ""),
    "ReduceSumSquare": ("torch.square", "torch.sum", ""),
}


@translates(*_STEPS)
def reduction(node: Node) -> Value:
    """Translate to torch's reduction with a function before or after it; the result has the dtype of the input."""
    x = node.input(0)
    before, type, after = _STEPS[node.type]
    given = _dims(node, x)
    y = widened(node, x) if _needs_width(node, x) else x
    y = node.make(before, y) if before else y
    if given is not None:
        y = _reduced(node, type, y, given)
    y = node.make(after, y) if after else y
    return in_dtype_of(node, y, x)


def _needs_width(node: Node, x: Value) -> bool:
    """Return whether the function is inexact in the input's dtype."""
    if x.dtype is not None and x.dtype.kind in "iu":
        return node.type in ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp")
    is_inexact = node.type in ("ReduceL2", "ReduceLogSum", "ReduceSumSquare")
    return is_inexact or (x.dtype is None and node.type in ("ReduceLogSumExp", "ReduceMean"))


def _dims(node: Node, x: Value) -> dict[str, Any] | None:
    """Return the parameters that name the axes; None if none is reduced."""
    axes, is_noop = node.integers(1, "axes"), bool(node.number("noop_with_empty_axes", 0))
    if axes:
        rank = x.rank
        return {"dim": axes if rank is None else tuple(axis + rank if -rank <= axis < 0 else axis for axis in axes)}
    if axes is not None or not node.is_given(1):
        return None if is_noop else {"dim": tuple(range(x.rank))} if x.rank else {}
    spec = node.input(1).tensor
    is_known = spec is not None and spec.rank == 1 and spec.shape[0]
    return {"noop_with_empty_dim": True} if is_noop and not is_known else {}


def _reduced(node: Node, type: str, x: Value, given: dict[str, Any]) -> Value:
    keeps, dims = bool(node.number("keepdims", 1)), given.get("dim", ())
    if node.is_given(1) and "dim" not in given and node.array(1) is None:
        return node.make(type, x, node.input(1), labels=("input", "dim"), keepdim=keeps, **given, **_extra(type, x))
    is_image = x.dtype is not None and x.dtype.kind == "f" and x.rank in (3, 4, 5) and keeps
    if type == "torch.mean" and is_image and x.rank and sorted(dims) == list(range(2, x.rank)):
        return node.make(f"nn.AdaptiveAvgPool{x.rank - 2}d", x, output_size=(1,) * (x.rank - 2))
    return node.make(type, x, keepdim=keeps, **given, **_extra(type, x))


def _extra(type: str, x: Value) -> dict[str, Any]:
    """Return parameters that allow what PyTorch refuses: an extreme of no elements, and means of integers."""
    if type in ("torch.amax", "torch.amin"):
        return {} if x.tensor is not None and all(x.tensor.shape) else {"allow_empty": True}
    return {"dtype": "torch.long"} if type == "torch.mean" and x.dtype is not None and x.dtype.kind in "iu" else {}


@translates("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss", since=12)
def loss(node: Node) -> list[Value]:
    """Return the weighted negative log-likelihood of the target classes, and optionally all log-probabilities."""
    x, target, weight = node.input(0), node.input(1), node.optional(2)
    logarithms = widened(node, x)
    if node.type == "SoftmaxCrossEntropyLoss":
        logarithms = node.make("F.log_softmax", logarithms, dim=1)
    index, ignored = node.make("Tensor.to", target, dtype="torch.long"), None
    if "ignore_index" in node.attributes:
        ignored = node.make("torch.eq", index, other=node.number("ignore_index", 0))
        index = node.make("Tensor.masked_fill", index, ignored, value=0)
    column = node.make("torch.unsqueeze", index, dim=1)
    picked = node.make("torch.squeeze", node.make("torch.gather", logarithms, column, dim=1), dim=1)
    if weight is None:
        weights = node.make("torch.ones_like", picked)
    else:
        weights = node.make("aten::take", in_dtype_of(node, weight, logarithms), index)
    if ignored is not None:
        weights = node.make("Tensor.masked_fill", weights, ignored, value=0.0)
    lost = node.make("torch.mul", node.make("torch.neg", picked), weights)
    kind = node.text("reduction", "mean")
    if kind != "none":
        lost = node.make("torch.sum", lost)
    if kind == "mean":
        lost = node.make("torch.div", lost, node.make("torch.sum", weights))
    return [in_dtype_of(node, each, x) for each in (lost, logarithms)]


@translates("CumSum", since=11)
@translates("CumProd", since=26)
def running(node: Node) -> Value:
    """Translate to torch.cumsum or torch.cumprod in the dtype of the input."""
    x, axis = node.input(0), node.integers(1, "axis")
    given: dict[str, Any] = {key: bool(node.number(key, 0)) for key in ("exclusive", "reverse")}
    if x.dtype in CODES:
        given["dtype"] = TORCH_NAMES[CODES[x.dtype]]
    type = f"torch.{node.type.lower()}"
    if axis is not None:
        return in_dtype_of(node, node.make(type, x, dim=axis[0], **given), x)
    return in_dtype_of(node, node.make(type, x, node.input(1), labels=("input", "dim"), **given), x)
