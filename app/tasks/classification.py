"""Task classification: class scores to label, probability and index, best first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from app.errors import ConfigError
from app.images.placement import Placement
from app.schema import Body, Positive, Section
from app.tasks.probabilities import activate
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

    def predict(
        self, outputs: Outputs, placements: Sequence[Placement], options: ClassificationConfig
    ) -> list[list[Prediction]]:
        """Return the top_k classes of each item; ties in class order, NaN last and as null."""
        scores = outputs[self._output]
        if scores.ndim < 2 or math.prod(scores.shape[2:]) != 1:
            raise ConfigError(f"output '{self._output}': found shape {list(scores.shape)}, expected (N, classes)")
        self._context.check_labels(scores.shape[1])
        rows = scores.reshape(scores.shape[:2])
        probabilities = activate(rows.astype(np.float64), options.activation)
        return [best_classes(row, options.top_k, self._context) for row in probabilities]


def best_classes(probabilities: NDArray[np.float64], count: int, context: TaskContext) -> list[Prediction]:
    """Return the classes of highest probability; ties in class order, NaN last and as null."""
    order = np.argsort(-probabilities, kind="stable")[:count].tolist()
    found = [(index, float(probabilities[index])) for index in order]
    return [
        {"label": context.label(index), "probability": rounded(value) if math.isfinite(value) else None, "index": index}
        for index, value in found
    ]
