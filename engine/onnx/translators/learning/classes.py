"""Labels and scores, as every classifier of ONNX's machine learning domain ends."""

from __future__ import annotations

from typing import Any, Final

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
    params: dict[str, Any] = {"labels": labels} if above is None else {"labels": labels, "above": above}
    label = named(node, 0, "onnx.ClassLabel", scores, **params)
    return [label, step(node, scores, node.text("post_transform", "NONE"), 1, other)]


def step(node: Node, scores: Value, transform: str, output: int = 0, other: str = "") -> Value:
    """Scores after their last step.

    Args:
        output: which of the operator's results they are.
    """
    if transform not in _TRANSFORMS:
        raise ParameterError("no such post_transform", found=transform[:80], expected=", ".join(_TRANSFORMS))
    if transform == "NONE" and not other:
        return scores
    return named(node, output, "onnx.ClassScores", scores, post_transform=transform, other=other)


def named(node: Node, output: int, type: str, *inputs: Value, **params: Any) -> Value:
    """Append an operator whose result is the one of this place."""
    name = node.outputs[output] if output < len(node.outputs) else ""
    return node.builder.add(type, node.name, inputs, outputs=(name,), params=params)[0]
