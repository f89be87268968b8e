"""Losses, as far as inference has a use for them: what a model was trained to make small."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from engine.errors import ShapeError
from engine.layers.definition.layer import NO_ANNOTATIONS, Annotations, Layer
from engine.layers.definition.registry import register
from engine.layers.onnx.operands.adapter import present, selected
from engine.layers.operands.precision import widened
from engine.promotion import cast
from engine.tensor import Array, TensorSpec, format_shape

Reduction = Literal["none", "mean", "sum"]


class _Loss(Layer):
    """Base of losses by class.

    Parameters:
        ignore_index: a target that counts nothing.
    """

    reduction: Reduction = "mean"
    ignore_index: int | None = None

    def reduced(self, scores: TensorSpec, target: TensorSpec) -> TensorSpec:
        """What is known of the loss."""
        if scores.rank < 2 or target.rank != scores.rank - 1:
            found = f"{format_shape(scores.shape)} and {format_shape(target.shape)}"
            raise ShapeError("scores and targets do not fit", found=found, expected="[N, C, ...] and [N, ...]")
        return TensorSpec(target.shape if self.reduction == "none" else (), scores.dtype)

    def loss(self, logarithms: Array, target: Array, weight: Array | None) -> Array:
        """-weight[target] * logarithms[target], without those that are ignored."""
        classes, ignored = logarithms.shape[1], np.zeros(target.shape, np.bool_)
        if self.ignore_index is not None:
            ignored = target == self.ignore_index
        index = np.where(ignored, 0, target).astype(np.int64)
        if index.size and not 0 <= int(index.min()) <= int(index.max()) < classes:
            raise ShapeError("no such class", found=int(index.max()), expected=f"0 to {classes - 1}")
        picked = np.take_along_axis(logarithms, index[:, None], 1)[:, 0]
        weights = np.ones(target.shape, logarithms.dtype) if weight is None else weight.take(index)
        weights = np.where(ignored, 0, weights)
        lost = -picked * weights
        if self.reduction == "none":
            return np.asarray(lost)
        total = lost.sum()
        return np.asarray(total if self.reduction == "sum" else total / weights.sum())


@register("NegativeLogLikelihoodLoss", positional=("input", "target", "weight"))
class NegativeLogLikelihood(_Loss):
    """The negative logarithms of the right classes, weighed.

    Shapes:
        input (N, C, *S), target (N, *S), weight (C,)  ->  (N, *S) or ()
    """

    def infer(self, input: TensorSpec, target: TensorSpec, weight: Any = None) -> TensorSpec:
        return self.reduced(input, target)

    def forward(self, input: Array, target: Array, weight: Array | None = None) -> Array:
        self.infer(TensorSpec(input.shape, input.dtype), TensorSpec(target.shape, target.dtype))
        with np.errstate(all="ignore"):
            return cast(self.loss(widened(input), target, weight), input.dtype)


@register("SoftmaxCrossEntropyLoss", positional=("scores", "labels", "weights"))
class SoftmaxCrossEntropy(_Loss):
    """The same of the logarithms of softmax; those, too.

    Shapes:
        scores (N, C, *S), labels (N, *S), weights (C,)  ->  (N, *S) or (), (N, C, *S)
    """

    annotations: Annotations = NO_ANNOTATIONS

    def infer(self, scores: TensorSpec, labels: TensorSpec, weights: Any = None) -> Any:
        results = (self.reduced(scores, labels), TensorSpec(scores.shape, scores.dtype))
        return selected(results, present(results, self.annotations))

    def forward(self, scores: Array, labels: Array, weights: Array | None = None) -> Any:
        self.infer(TensorSpec(scores.shape, scores.dtype), TensorSpec(labels.shape, labels.dtype))
        with np.errstate(all="ignore"):
            x = widened(scores)
            shifted = x - x.max(1, keepdims=True)
            logarithms = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
            loss = self.loss(logarithms, labels, weights)
        results = tuple(cast(each, scores.dtype) for each in (loss, logarithms))
        return results[0] if len(self.annotations.outputs) < 2 else results
