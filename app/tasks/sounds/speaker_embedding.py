"""Task speaker-embedding: a vector for the voice in a sound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from app.schema import Body, Section
from app.tasks.sounds.sound_task import SoundTask, Window
from app.tasks.task import Prediction

# Windows with more padding than the rest are left out, unless there is no other; as Resemblyzer does.
_COVERAGE: Final = 0.75


class SpeakerEmbeddingConfig(Section):
    """Conversion of the vectors of windows to one vector."""

    output: str | None = Field(default=None, description="Output with vectors, (N, width); default: the first.")
    normalise: bool = Field(default=True, description="Scale vectors of windows and of the sound to length 1.")


class SpeakerBody(Body):
    """Vector of a voice, and the length of the sound in seconds."""

    embedding: list[float]
    duration: float


class SpeakerEmbeddingTask(SoundTask[SpeakerEmbeddingConfig]):
    """Vector from one output of shape (N, width): the mean of all windows."""

    NAME = "speaker-embedding"
    CONFIG = SpeakerEmbeddingConfig
    FINDING = SpeakerBody
    EXAMPLE = {"predictions": {"embedding": [0.6, -0.8], "duration": 3.2}}

    def predict_sound(self, windows: Sequence[Window], options: SpeakerEmbeddingConfig) -> Prediction:
        """Return the vector of a sound, as float32."""
        filled = [each for each in windows if each.clip.end_s - each.clip.start_s >= _COVERAGE * each.clip.seconds]
        rows = np.stack([self._row(each, self._output, 1, "(N, width)") for each in filled or windows[:1]])
        rows = rows.astype(np.float64)
        vector = (_scaled(rows) if options.normalise else rows).mean(axis=0)
        vector = _scaled(vector[None])[0] if options.normalise else vector
        return {"embedding": vector.astype(np.float32), "duration": round(windows[-1].clip.end_s, 3)}


def _scaled(rows: NDArray[Any]) -> NDArray[Any]:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, np.finfo(np.float32).tiny))
