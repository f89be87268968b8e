"""Scores and labels of the classifiers of ``ai.onnx.ml``."""

from __future__ import annotations

from typing import Any, Final, Literal

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.onnx.operands.dtypes import STRING
from engine.layers.operands.precision import INT64
from engine.tensor import Array, DType, TensorSpec, format_shape

Transform = Literal["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"]
_NOTHING: Final = 1e-7


def transformed(scores: Array, transform: str) -> Array:
    """Apply a post-transform to the scores of each row.

    Args:
        scores: (N, K).
    """
    with np.errstate(all="ignore"):
        if transform == "LOGISTIC":
            return _logistic(scores)
        if transform == "PROBIT":
            return _probit(scores)
        if transform in ("SOFTMAX", "SOFTMAX_ZERO"):
            most = scores.max(axis=1, keepdims=True) if scores.shape[1] else scores
            raised = np.exp(scores - most)
            if transform == "SOFTMAX_ZERO":  # zeros stay close to 0
                raised = np.where(np.abs(scores) > _NOTHING, raised, scores * np.exp(-most))
            return np.asarray(raised / raised.sum(axis=1, keepdims=True))
    return scores


def _logistic(x: Array) -> Array:
    half = 1 / (1 + np.exp(-np.abs(x)))
    return np.where(x < 0, 1 - half, half).astype(x.dtype)


def _probit(x: Array) -> Array:
    """Return the quantile of the normal distribution, by onnxruntime's approximation."""
    twice = 2 * x - 1
    log = np.log((1 - twice) * (1 + twice))
    v = 2 / (3.14159 * 0.147) + 0.5 * log
    root = np.sqrt(-v + np.sqrt(v * v - log / 0.147))
    return np.asarray(np.where(twice < 0, -root, root) * 1.41421356, x.dtype)


@register("onnx.ClassScores")
class ClassScores(Layer):
    """Scores after the post-transform.

    Parameters:
        other: for a single column, the score of the other class: 1 - s ("complement"), -s ("negative"), or none.

    Shapes:
        scores (N, K)  ->  (N, K), or (N, 2) of one column with another
    """

    post_transform: Transform = "NONE"
    other: Literal["", "complement", "negative"] = ""

    def infer(self, scores: TensorSpec) -> TensorSpec:
        _check_scores(scores.shape)
        if self.other and scores.shape[1] not in (1, None):
            raise ShapeError("no single column of scores", found=format_shape(scores.shape), expected="[N, 1]")
        return TensorSpec((scores.shape[0], 2), scores.dtype) if self.other else scores

    def forward(self, scores: Array) -> Array:
        self.infer(TensorSpec(scores.shape, scores.dtype))
        if not self.other:
            return transformed(scores, self.post_transform).astype(scores.dtype)
        is_logistic = self.post_transform == "LOGISTIC"
        first = 1 - scores if self.other == "complement" and not is_logistic else -scores
        both = np.concatenate([first, scores], axis=1)
        return transformed(both, self.post_transform if is_logistic else "NONE").astype(scores.dtype)


@register("onnx.ClassLabel")
class ClassLabel(Layer):
    """Label of the highest score; of two classes, by the score of the second.

    Parameters:
        labels: strings or integers.
        above: rows whose last column exceeds this have the second label.

    Shapes:
        scores (N, K)  ->  (N)
    """

    labels: tuple[Any, ...]
    above: float | None = None

    def __post_init__(self) -> None:
        kinds = {type(each) for each in self.labels}
        if kinds not in ({str}, {int}) or (self.above is not None and len(self.labels) != 2):
            raise ParameterError("no list of labels", found=len(self.labels), expected="texts, or integers")

    def infer(self, scores: TensorSpec) -> TensorSpec:
        _check_scores(scores.shape)
        width = scores.shape[1]
        if self.above is None and width is not None and width != len(self.labels):
            raise ShapeError("another number of classes", found=width, expected=len(self.labels))
        return TensorSpec((scores.shape[0],), self._dtype)

    def forward(self, scores: Array) -> Array:
        self.infer(TensorSpec(scores.shape, scores.dtype))
        place = scores.argmax(axis=1) if self.above is None else (scores[:, -1] > self.above).astype(np.int64)
        return np.asarray(labels_array(self.labels)[place])

    @property
    def _dtype(self) -> DType:
        return STRING if isinstance(self.labels[0], str) else INT64


def labels_array(labels: tuple[Any, ...]) -> Array:
    """Return labels as an array of their dtype."""
    array = np.empty(len(labels), STRING if isinstance(labels[0], str) else INT64)
    array[:] = list(labels)
    return array


def _check_scores(shape: tuple[int | None, ...]) -> None:
    if len(shape) != 2 or shape[1] == 0:
        raise ShapeError("no scores of classes", found=format_shape(shape), expected="[N, K]")
