"""Task classification: class scores to label, probability and index, best first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from app.arrays import all_finite, few_values
from app.errors import ConfigError
from app.images.placement import Placement
from app.schema import Body, Positive, Section
from app.tasks.probabilities import activate, activate_few
from app.tasks.task import Outputs, Prediction, Task, TaskContext, rounded


class ClassificationConfig(Section):
    """Conversion of class scores to labels and probabilities."""

    output: str | None = Field(default=None, description="Output with the scores, (N, classes); default: the first.")
    top_k: Positive = Field(default=5, description="Number of classes returned, highest score first.")
    activation: Literal["softmax", "sigmoid", "none", "auto"] = Field(
        default="auto",
        description="What makes scores probabilities; auto: none for rows that are a distribution, else softmax.",
    )


class ClassBody(Body):
    """Class predicted by a classification."""

    label: str
    probability: float | None
    index: int


class ClassificationTask(Task[ClassificationConfig]):
    """Classification from one output of shape (N, classes) or (N, classes, 1, 1)."""

    NAME = "classification"
    CONFIG = ClassificationConfig
    PARAMETERS = {"top_k": "how many classes", "activation": "softmax, sigmoid, none or auto"}
    FINDING = list[ClassBody]
    EXAMPLE = {
        "predictions": [
            {"label": "cat", "probability": 0.93, "index": 1},
            {"label": "dog", "probability": 0.06, "index": 2},
        ]
    }

    def __init__(self, config: ClassificationConfig, context: TaskContext) -> None:
        super().__init__(config, context)
        self._output = self._named_output("output", config.output)

    def predict(
        self, outputs: Outputs, placements: Sequence[Placement], options: ClassificationConfig
    ) -> list[list[Prediction]]:
        """Return the top_k classes of each item; ties in class order, NaN last and as null."""
        scores = outputs[self._output]
        if scores.ndim < 2 or math.prod(scores.shape[2:]) != 1:
            raise ConfigError(f"output '{self._output}': found shape {list(scores.shape)}, expected (N, classes)")
        self._context.check_labels(scores.shape[1])
        rows = scores.reshape(scores.shape[:2])
        if len(rows) == 1 and (few := few_values(rows)) is not None and all_finite(few):
            found = activate_few(few, options.activation)
            best = sorted(range(len(found)), key=found.__getitem__, reverse=True)[: options.top_k]
            return [[self._prediction(index, found[index]) for index in best]]
        probabilities = activate(rows.astype(np.float64), options.activation)
        orders = np.argsort(-probabilities, axis=1, kind="stable")[:, : options.top_k]
        return [
            [self._prediction(int(index), float(row[index])) for index in order]
            for row, order in zip(probabilities, orders, strict=True)
        ]

    def _prediction(self, index: int, probability: float) -> Prediction:
        known = rounded(probability) if math.isfinite(probability) else None
        return {"label": self._context.label(index), "probability": known, "index": index}
