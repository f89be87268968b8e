"""Task audio-classification: classes of sounds, and of the windows of long sounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from app.schema import Positive, Section
from app.tasks.classification import ClassBody
from app.tasks.probabilities import activate
from app.tasks.sounds.sound_task import SoundTask, Window
from app.tasks.task import Prediction, TaskContext, rounded


class AudioClassificationConfig(Section):
    """Conversion of class scores to labels and probabilities."""

    output: str | None = Field(default=None, description="Output with the scores, (N, classes); default: the first.")
    top_k: Positive = Field(default=5, description="Number of classes returned, highest score first.")
    activation: Literal["softmax", "sigmoid", "none", "auto"] = Field(
        default="auto",
        description="What makes scores probabilities; auto: none for rows that are a distribution, else softmax.",
    )
    pooling: Literal["mean", "max"] = Field(
        default="mean", description="Probability of a class in a sound of several windows: their mean or maximum."
    )
    windows: bool = Field(default=False, description="Return the classes of each window with its times, in seconds.")


class AudioClassificationTask(SoundTask[AudioClassificationConfig]):
    """Classification of sounds from one output of shape (N, classes)."""

    NAME = "audio-classification"
    CONFIG = AudioClassificationConfig
    PARAMETERS = {
        "top_k": "how many classes",
        "activation": "softmax, sigmoid, none or auto",
        "pooling": "mean or max",
        "windows": "true: classes of each window",
    }
    FINDING = list[ClassBody]
    EXAMPLE = {"predictions": [{"label": "yes", "probability": 0.97, "index": 3}]}

    def __init__(self, config: AudioClassificationConfig, context: TaskContext) -> None:
        super().__init__(config, context)
        self._output = self._named_output("output", config.output)

    def predict_sound(self, windows: Sequence[Window], options: AudioClassificationConfig) -> list[Prediction]:
        """Return the top_k classes of the sound, or of each window; ties in class order, NaN last and as null."""
        scores = np.stack([self._row(window, self._output, 1, "(N, classes)") for window in windows])
        self._context.check_labels(scores.shape[1])
        probabilities = activate(scores.astype(np.float64), options.activation)
        if options.windows:
            return [
                {
                    "start": rounded(window.clip.start_s),
                    "end": rounded(window.clip.end_s),
                    "classes": self._best(row, options.top_k),
                }
                for window, row in zip(windows, probabilities, strict=True)
            ]
        pooled = probabilities.mean(axis=0) if options.pooling == "mean" else probabilities.max(axis=0)
        return self._best(pooled, options.top_k)

    def _best(self, probabilities: NDArray[Any], count: int) -> list[Prediction]:
        order = np.argsort(-probabilities, kind="stable")[:count]
        return [self._prediction(int(index), float(probabilities[index])) for index in order]

    def _prediction(self, index: int, probability: float) -> Prediction:
        known = rounded(probability) if math.isfinite(probability) else None
        return {"label": self._context.label(index), "probability": known, "index": index}
