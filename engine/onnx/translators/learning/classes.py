"""Labels and scores, as every classifier of ONNX's machine learning domain ends."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from engine.errors import ParameterError
from engine.onnx.translation.node import Node
from engine.onnx.translation.value import Value

_TRANSFORMS: Final = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")


def labels_of_classes(node: Node, integers: str) -> tuple[Any, ...]:
    """The labels of a classifier, texts or integers; they become those of the model, too.

    Args:
        integers: the attribute that has them if no attribute has texts.

    Raises:
        ParameterError: it has none.
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
    """The label of each row, and its scores after their last step.

    Args:
        above: the second label of two is that of more than this.
        other: what the class has that the only column is not about.
    """
    if len(labels) == 1:  # of one class it is said whether it is that
        labels, above = (("0", "1") if isinstance(labels[0], str) else (0, 1)), 0.0
    return [label(node, scores, labels, above), step(node, scores, node.text("post_transform", "NONE"), 1, other)]


def label(node: Node, scores: Value, labels: tuple[Any, ...], above: float | None = None) -> Value:
    """Return the label of each row: of the class that has most, or the second of two where its score is above.

    Raises:
        ParameterError: there are more or fewer scores than labels.
    """
    width = None if scores.tensor is None or scores.rank != 2 else scores.tensor.shape[1]
    if above is None and width not in (None, len(labels)):
        raise ParameterError("another number of classes", found=width, expected=len(labels))
    if isinstance(labels[0], str) or width is None:
        params: dict[str, Any] = {"labels": labels} if above is None else {"labels": labels, "above": above}
        return named(node, 0, "onnx.ClassLabel", scores, **params)
    if above is None:
        place = named(node, 0, "torch.argmax", scores, dim=1, keepdim=False)
    else:
        last = named(node, 0, "Tensor.select", scores, dim=1, index=width - 1)
        is_above = named(node, 0, "torch.gt", last, other=float(above))
        place = named(node, 0, "Tensor.to", is_above, dtype="torch.long")
    if labels == tuple(range(len(labels))):
        return place
    table = node.constant(np.array(labels, np.int64))
    return named(node, 0, "torch.index_select", table, place, dim=0)


def step(node: Node, scores: Value, transform: str, output: int = 0, other: str = "") -> Value:
    """Scores after their last step.

    Args:
        output: which of the operator's results they are.
    """
    if transform not in _TRANSFORMS:
        raise ParameterError("no such post_transform", found=transform[:80], expected=", ".join(_TRANSFORMS))
    if transform == "NONE" and not other:
        return scores
    if scores.rank != 2 or scores.dtype != np.float32 or transform in ("PROBIT", "SOFTMAX_ZERO"):
        return named(node, output, "onnx.ClassScores", scores, post_transform=transform, other=other)
    if other:
        is_logistic = transform == "LOGISTIC"
        text = "sub(1.0,@0)" if other == "complement" and not is_logistic else "neg(@0)"
        first = named(node, output, "pnnx.Expression", scores, expr=text)
        scores = named(node, output, "torch.cat", first, scores, dim=1)
        transform = transform if is_logistic else "NONE"
    if transform == "LOGISTIC":
        return named(node, output, "F.sigmoid", scores)
    return named(node, output, "F.softmax", scores, dim=1) if transform == "SOFTMAX" else scores


def named(node: Node, output: int, type: str, *inputs: Value, **params: Any) -> Value:
    """Append an operator whose result is the one of this place."""
    name = node.outputs[output] if output < len(node.outputs) else ""
    return node.builder.add(type, node.name, inputs, outputs=(name,), params=params)[0]
