"""Labels and scores, the results of every classifier of ``ai.onnx.ml``."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from engine.errors import ParameterError
from engine.onnx.translation.node import Node
from engine.onnx.translation.value import Value

_NOTHING: Final = 1e-7
_TRANSFORMS: Final = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")


def labels_of_classes(node: Node, integers: str) -> tuple[Any, ...]:
    """Return the labels of a classifier, strings or integers, and make them the model's labels.

    Args:
        integers: the attribute with integer labels, used if there are no strings.

    Raises:
        ParameterError: it has no labels.
    """
    texts = node.attributes.get("classlabels_strings", ())
    labels = texts or node.attributes.get(integers, ())
    kinds = {type(each) for each in labels} if isinstance(labels, tuple) else set()
    if kinds not in ({str}, {int}):
        raise ParameterError("no labels", found=repr(labels)[:80], expected=f"classlabels_strings or {integers}")
    node.builder.labels = node.builder.labels or tuple(map(str, labels))
    return tuple(labels)


def classified(
    node: Node, scores: Value, labels: tuple[Any, ...], above: float | None = None, other: str = ""
) -> list[Value]:
    """Append the label of each row and its scores after the post-transform.

    Args:
        above: threshold above which a row has the second of two labels.
        other: the score of the class that the only column does not describe.
    """
    if len(labels) == 1:  # one label: 1 if the row has it, else 0
        labels, above = (("0", "1") if isinstance(labels[0], str) else (0, 1)), 0.0
    return [label(node, scores, labels, above), step(node, scores, node.text("post_transform", "NONE"), 1, other)]


def label(node: Node, scores: Value, labels: tuple[Any, ...], above: float | None = None) -> Value:
    """Return the label of each row: that of the highest score, or the second of two if its score exceeds ``above``.

    Raises:
        ParameterError: there are more or fewer scores than labels.
    """
    width = None if scores.tensor is None or scores.rank != 2 else scores.tensor.shape[1]
    if above is None and width not in (None, len(labels)):
        raise ParameterError("another number of classes", found=width, expected=len(labels))
    if above is None:
        place = named(node, 0, "torch.argmax", scores, dim=1, keepdim=False)
    else:
        last = named(node, 0, "Tensor.select", scores, dim=1, index=-1)
        is_above = named(node, 0, "torch.gt", last, other=float(above))
        place = named(node, 0, "Tensor.to", is_above, dtype="torch.long")
    numbers = tuple(range(len(labels)))
    if labels == numbers:
        return place
    if isinstance(labels[0], str):
        return named(node, 0, "LabelEncoder", place, keys=numbers, values=labels, default="")
    return named(node, 0, "torch.index_select", node.constant(np.array(labels, np.int64)), place, dim=0)


def step(node: Node, scores: Value, transform: str, output: int = 0, other: str = "") -> Value:
    """Apply the post-transform to scores.

    Args:
        output: index of the operator's result that they are.
        other: for a single column, the score of the other class: 1 - s ("complement"), -s ("negative"), or none.
    """
    if transform not in _TRANSFORMS:
        raise ParameterError("no such post_transform", found=transform[:80], expected=", ".join(_TRANSFORMS))
    if other:
        is_logistic = transform == "LOGISTIC"
        text = "sub(1.0,@0)" if other == "complement" and not is_logistic else "neg(@0)"
        first = named(node, output, "pnnx.Expression", scores, expr=text)
        scores = named(node, output, "torch.cat", first, scores, dim=1)
        transform = transform if is_logistic else "NONE"
    match transform:
        case "LOGISTIC":
            return named(node, output, "F.sigmoid", scores)
        case "SOFTMAX":
            return named(node, output, "F.softmax", scores, dim=1)
        case "SOFTMAX_ZERO":
            return _softmax_zero(node, scores, output)
        case "PROBIT":
            return _probit(node, scores, output)
    return scores


def _softmax_zero(node: Node, scores: Value, output: int) -> Value:
    """Return a softmax whose zeros stay close to 0."""
    most = node.make("torch.amax", scores, dim=(1,), keepdim=True)
    raised, small = (node.expression(text, scores, most) for text in ("exp(sub(@0,@1))", "mul(@0,exp(neg(@1)))"))
    is_zero = node.make("torch.le", node.expression("abs(@0)", scores), other=_NOTHING)
    raised = node.make("torch.where", is_zero, small, raised)
    total = node.make("torch.sum", raised, dim=(1,), keepdim=True)
    return named(node, output, "pnnx.Expression", raised, total, expr="div(@0,@1)")


def _probit(node: Node, scores: Value, output: int) -> Value:
    """Return the quantile of the normal distribution, by onnxruntime's approximation."""
    log = node.expression("log(mul(sub(2,mul(2,@0)),mul(2,@0)))", scores)
    v = node.expression(f"add({2 / (3.14159 * 0.147)},mul(0.5,@0))", log)
    text = "mul(mul(sign(sub(mul(2,@0),1)),sqrt(sub(sqrt(sub(mul(@1,@1),div(@2,0.147))),@1))),1.41421356)"
    return named(node, output, "pnnx.Expression", scores, v, log, expr=text)


def named(node: Node, output: int, type: str, *inputs: Value, **params: Any) -> Value:
    """Append an operator whose result becomes the node's output with this index."""
    name = node.outputs[output] if output < len(node.outputs) else ""
    return node.builder.add(type, node.name, inputs, outputs=(name,), params=params)[0]
