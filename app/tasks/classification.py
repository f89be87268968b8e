"""classification: scores of classes -> label, probability and index, best first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from app.config import ClassificationConfig
from app.errors import ConfigError
from app.images.placement import Placement
from app.tasks.task import Outputs, Prediction, TaskContext, overlay, rounded


class ClassificationTask:
    """Reads one output of shape (N, classes), or (N, classes, 1, 1) as fully convolutional networks have it."""

    PARAMETERS: ClassVar[tuple[str, ...]] = ("top_k", "activation")

    def __init__(self, context: TaskContext) -> None:
        self._context = context
        self._config = context.config.classification
        name = self._config.output or context.signature.output_names[0]
        self._output = context.check_output("classification.output", name)

    def options(self, parameters: Mapping[str, Any]) -> ClassificationConfig:
        """top_k and activation."""
        return overlay(self._config, parameters, self.PARAMETERS)

    def predict(
        self, outputs: Outputs, placements: Sequence[Placement], options: ClassificationConfig
    ) -> list[list[Prediction]]:
        """The top_k classes of each item; equal scores in the order of the classes, NaN last and as null."""
        scores = outputs[self._output]
        if scores.ndim < 2 or math.prod(scores.shape[2:]) != 1:
            raise ConfigError(f"output '{self._output}': found shape {list(scores.shape)}, expected (N, classes)")
        self._context.check_labels(scores.shape[1])
        probabilities = activate(scores.reshape(scores.shape[:2]).astype(np.float64), options.activation)
        best = np.argsort(-probabilities, axis=1, kind="stable")[:, : options.top_k]
        return [
            [self._prediction(int(index), float(row[index])) for index in order]
            for row, order in zip(probabilities, best, strict=True)
        ]

    def _prediction(self, index: int, probability: float) -> Prediction:
        known = rounded(probability) if math.isfinite(probability) else None
        return {"label": self._context.label(index), "probability": known, "index": index}


def activate(scores: NDArray[np.float64], activation: str) -> NDArray[np.float64]:
    """Scores (N, classes) as probabilities; "auto" leaves rows alone that already are a distribution."""
    if activation == "none":
        return scores
    with np.errstate(all="ignore"):  # overflow to infinity and NaN are the right answers here
        if activation == "sigmoid":
            return np.asarray(1 / (1 + np.exp(-scores)))
        shifted = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-np.inf))
        softmax = np.asarray(shifted / shifted.sum(axis=1, keepdims=True))
        if activation == "softmax":
            return softmax
        is_distribution = (scores >= 0).all(axis=1) & (np.abs(scores.sum(axis=1) - 1) < 1e-3)
        return np.where(is_distribution[:, None], scores, softmax)
