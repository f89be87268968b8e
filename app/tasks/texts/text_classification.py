"""Tasks text-classification and rerank: classes of texts, and scores of pairs of texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from app.errors import ConfigError
from app.schema import Body, Section
from app.tasks.classification import ClassificationTask
from app.tasks.probabilities import activate
from app.tasks.task import Outputs, Prediction, TextTask, rounded
from app.text.text import Encoding, Texts


class TextClassificationTask(ClassificationTask):
    """Classification of texts from one output of shape (N, classes)."""

    NAME = "text-classification"
    TAKES = Texts
    EXAMPLE = {"predictions": [{"label": "positive", "probability": 0.98, "index": 1}]}


class RerankConfig(Section):
    """Conversion of a model's output to the score of a pair of texts."""

    output: str | None = Field(default=None, description="Output with scores, (N,), (N, 1) or (N, 2); default: first.")
    activation: Literal["sigmoid", "none"] = Field(
        default="sigmoid", description="sigmoid: scores become 0 to 1; none: as the model has them."
    )


class RerankBody(Body):
    """Score of a pair: how well the document answers the query."""

    score: float | None
    tokens: int
    truncated: bool


class RerankTask(TextTask[RerankConfig]):
    """Scores of pairs of query and document from one output of shape (N,), (N, 1) or (N, 2)."""

    NAME = "rerank"
    CONFIG = RerankConfig
    PARAMETERS = {"activation": "sigmoid or none"}
    FINDING = RerankBody
    EXAMPLE = {"predictions": {"score": 0.97, "tokens": 21, "truncated": False}}

    def predict(self, outputs: Outputs, encodings: Sequence[Encoding], options: RerankConfig) -> list[Prediction]:
        """Return the score of each pair; with two classes, that of the second against the first."""
        found = outputs[self._output]
        scores = found.reshape(len(encodings), -1).astype(np.float64) if found.size else found
        if len(found) != len(encodings) or scores.ndim != 2 or scores.shape[1] not in (1, 2):
            raise ConfigError(f"output '{self._output}': found shape {list(found.shape)}, expected (N, 1) or (N, 2)")
        logits = scores[:, 0] if scores.shape[1] == 1 else scores[:, 1] - scores[:, 0]
        values = activate(logits[:, None], "sigmoid")[:, 0] if options.activation == "sigmoid" else logits
        return [
            {
                "score": rounded(float(value)) if math.isfinite(value) else None,
                "tokens": len(encoding.ids),
                "truncated": encoding.is_truncated,
            }
            for value, encoding in zip(values, encodings, strict=True)
        ]
