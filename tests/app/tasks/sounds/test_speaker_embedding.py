"""Vectors of voices: the mean of windows, scaled to length 1."""

from __future__ import annotations

import numpy as np
import pytest

import engine
from app.errors import ConfigError
from app.signature import Signature
from app.sound.sound import Clip
from app.tasks.sounds.speaker_embedding import SpeakerEmbeddingConfig, SpeakerEmbeddingTask
from app.tasks.task import TaskContext, TaskRun

CLIP = Clip(0.0, 1.0, 1.0, (0.0, 1.0))


def task() -> SpeakerEmbeddingTask:
    ports = [engine.Port(name=name, operand=name, spec=None, aliases=()) for name in ("in0", "out0")]
    context = TaskContext(signature=Signature(inputs=(ports[0],), outputs=(ports[1],)), labels=None)
    return SpeakerEmbeddingTask(SpeakerEmbeddingConfig(), context)


def test_windows_count_equally() -> None:
    rows = np.array([[3, 4], [0, 10], [5, 0]], np.float32)
    found = task().predict_all([TaskRun({"out0": rows}, [CLIP] * 3, [0, 0, 1])], SpeakerEmbeddingConfig())
    expected = np.array([0.6, 1.8]) / np.hypot(0.6, 1.8)
    np.testing.assert_allclose(found[0]["embedding"], expected, rtol=1e-6)
    np.testing.assert_allclose(found[1]["embedding"], [1, 0])
    assert found[1]["duration"] == 1


def test_vectors_can_stay_as_they_are() -> None:
    rows = np.array([[3, 4], [1, 0]], np.float32)
    found = task().predict_all([TaskRun({"out0": rows}, [CLIP] * 2, [0, 0])], SpeakerEmbeddingConfig(normalise=False))
    assert found[0]["embedding"].tolist() == [2, 2]
    silent = task().predict_all([TaskRun({"out0": 0 * rows}, [CLIP] * 2, [0, 0])], SpeakerEmbeddingConfig())
    assert silent[0]["embedding"].tolist() == [0, 0]


def test_outputs_of_steps_are_no_vectors() -> None:
    run = TaskRun({"out0": np.zeros((1, 3, 2), np.float32)}, [CLIP], [0])
    with pytest.raises(ConfigError, match=r"output 'out0': found shape \['N', 3, 2\], expected \(N, width\)"):
        task().predict_all([run], SpeakerEmbeddingConfig())
