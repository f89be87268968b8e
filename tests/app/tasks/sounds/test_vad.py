"""Spans of speech against silero-vad's own; see tests/data/sound/record_tasks.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from app.errors import ConfigError
from app.signature import Signature
from app.sound.sound import Clip
from app.tasks.sounds.vad import VadConfig, VadTask, find_spans
from app.tasks.task import TaskContext, TaskRun

DATA = Path(__file__).parents[3] / "data" / "sound"
ANSWERS: dict[str, Any] = json.loads((DATA / "tasks.json").read_text(encoding="utf-8"))
PROBABILITIES = np.load(DATA / "silero.npz")
STEP = 512 / 16_000
KEYS = {
    "threshold": ("threshold", 1),
    "neg_threshold": ("silence_threshold", 1),
    "min_silence_duration_ms": ("min_silence_s", 1e-3),
    "min_speech_duration_ms": ("min_speech_s", 1e-3),
    "speech_pad_ms": ("pad_s", 1e-3),
}


def port(name: str) -> engine.Port:
    return engine.Port(name=name, operand=name, spec=None, aliases=())


def task(**config: Any) -> VadTask:
    signature = Signature(inputs=(port("in0"),), outputs=(port("out0"),))
    return VadTask(VadConfig(**config), TaskContext(signature=signature, labels=None))


@pytest.mark.parametrize("name", ["speech", "rough"])
@pytest.mark.parametrize("index", range(len(ANSWERS["speech"])))
def test_spans_are_those_of_silero(name: str, index: int) -> None:
    answer = ANSWERS[name][index]
    config = VadConfig(**{KEYS[key][0]: value * KEYS[key][1] for key, value in answer["options"].items()})
    values = PROBABILITIES["probabilities" if name == "speech" else "rough"]
    length = answer["spans"][-1][1] if name == "rough" else None
    seconds = (480 * 512 - 100) / 16_000 if length is not None else len(values) * STEP
    found = find_spans(values.tolist(), STEP, seconds, config)
    assert len(found) == len(answer["spans"]) > 0
    # Silero counts in whole samples.
    np.testing.assert_allclose(np.array(found) * 16_000, answer["spans"], atol=1)


def test_windows_of_one_probability_are_joined_in_order() -> None:
    values = np.array([0.1, 0.9, 0.9, 0.1, 0.1], np.float32)
    clips = [Clip(at, at + 1.0, 1.0, (at, at + 1.0)) for at in range(5)]
    runs = [
        TaskRun({"out0": values[:2, None]}, clips[:2], [0, 0]),
        TaskRun({"out0": values[2:, None]}, clips[2:], [0, 0, 0]),
    ]
    (found,) = task(pad_s=0, probabilities=True).predict_all(runs, task(pad_s=0, probabilities=True)._config)
    assert found["spans"] == [{"start": 1.0, "end": 3.0, "score": pytest.approx(0.9)}]
    assert found["duration"] == 5 and found["step"] == 1
    np.testing.assert_array_equal(found["probabilities"], values)


def test_steps_of_overlapping_windows_count_once_and_padding_does_not() -> None:
    rows = np.array([[0, 1, 1, 1], [0, 1, 1, 0]], np.float32)
    clips = [Clip(0.0, 4.0, 4.0, (0.0, 3.0)), Clip(2.0, 5.0, 4.0, (3.0, 5.0))]
    config = VadConfig(probabilities=True)
    (found,) = task().predict_all([TaskRun({"out0": rows}, clips, [0, 0])], config)
    assert found["probabilities"].tolist() == [0, 1, 1, 1, 1]


def test_nan_is_silence_and_other_shapes_are_refused() -> None:
    clip = Clip(0.0, 1.0, 1.0, (0.0, 1.0))
    run = TaskRun({"out0": np.array([[np.nan]], np.float32)}, [clip], [0])
    assert task().predict_all([run], VadConfig())[0]["spans"] == []
    wrong = TaskRun({"out0": np.zeros((1, 3, 2), np.float32)}, [clip], [0])
    with pytest.raises(ConfigError, match=r"found shape \['N', 3, 2\], expected \(N, 1\) or \(N, steps\)"):
        task().predict_all([wrong], VadConfig())
