"""Task audio-classification: classes of sounds, and of the windows of long sounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from app.tasks.classification import ClassBody, ClassificationConfig, ClassificationTask, best_classes
from app.tasks.probabilities import activate
from app.tasks.sounds.sound_task import SoundTask, Window
from app.tasks.task import Prediction, rounded


class AudioClassificationConfig(ClassificationConfig):
    """Conversion of class scores to labels and probabilities."""

    pooling: Literal["mean", "max"] = Field(
        default="mean", description="Probability of a class in a sound of several windows: their mean or maximum."
    )
    windows: bool = Field(default=False, description="Return the classes of each window with its times, in seconds.")


class AudioClassificationTask(SoundTask[AudioClassificationConfig]):
    """Classification of sounds from one output of shape (N, classes)."""

    NAME = "audio-classification"
    CONFIG = AudioClassificationConfig
    PARAMETERS = {
        **ClassificationTask.PARAMETERS,
        "pooling": "mean or max",
        "windows": "true: classes of each window",
    }
    FINDING = list[ClassBody]
    EXAMPLE = {"predictions": [{"label": "yes", "probability": 0.97, "index": 3}]}

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
                    "classes": best_classes(row, options.top_k, self._context),
                }
                for window, row in zip(windows, probabilities, strict=True)
            ]
        pooled = probabilities.mean(axis=0) if options.pooling == "mean" else probabilities.max(axis=0)
        return best_classes(pooled, options.top_k, self._context)
