"""Features and resampled waves against librosa, torchaudio and transformers; see tests/data/sound/record.py."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from app.errors import RequestTooLargeError
from app.sound.config import SoundConfig
from app.sound.decode import Decoder
from app.sound.features import compose_features
from app.sound.sound import Sound
from tests.app.sound_models import wav

DATA = Path(__file__).parent.parent.parent / "data" / "sound"
ANSWERS = np.load(DATA / "features.npz")
VOICE = runpy.run_path(str(DATA / "record.py"))["voice"]

CONFIGS: dict[str, dict[str, Any]] = {
    "librosa db": {
        "padding": "zeros", "n_mels": 80, "mel_scale": "slaney", "mel_norm": "slaney", "log": "db", "log_range": 80,
    },
    "librosa ln": {"win_length": 320, "n_mels": 40, "fmin": 60, "fmax": 7_600, "power": 1, "log_floor": 1e-5},
    "librosa mfcc": {
        "features": "mfcc", "padding": "zeros", "n_mels": 64, "n_mfcc": 20, "mel_scale": "slaney",
        "mel_norm": "slaney", "log": "db", "log_range": 80,
    },
    "librosa inside": {
        "frames": "inside", "n_mels": 32, "mel_scale": "slaney", "mel_norm": "slaney", "log": "log10", "log_floor": 0,
        "log_offset": 1e-6, "taper": "hamming",
    },
    "torchaudio ln": {"n_fft": 512, "win_length": 400, "n_mels": 64, "log_floor": 0, "log_offset": 1e-6},
    "torchaudio mfcc": {"features": "mfcc", "n_mels": 40, "n_mfcc": 13, "log": "db", "log_range": 80},
    "torchaudio kaldi": {
        "frames": "kaldi", "n_fft": 512, "win_length": 400, "n_mels": 80, "fmin": 20, "mel_scale": "kaldi",
        "taper": "povey", "preemphasis": 0.97, "log_floor": float(np.finfo(np.float32).eps),
    },
    "torchaudio kaldi hamming": {
        "frames": "kaldi", "n_fft": 512, "win_length": 400, "n_mels": 40, "fmin": 20, "fmax": 7_600,
        "mel_scale": "kaldi", "taper": "hamming-symmetric", "preemphasis": 0.97, "scale": 32_768,
        "log_floor": float(np.finfo(np.float32).eps),
    },
    "transformers whisper": {
        "n_mels": 80, "mel_scale": "slaney", "mel_norm": "slaney", "log": "log10", "log_range": 8, "mean": -4, "std": 4,
        "window_s": 30,
    },
}  # fmt: skip


@pytest.mark.parametrize("backend", ["compiled", "reference"])
@pytest.mark.parametrize("name", CONFIGS)
def test_features_are_those_of_other_libraries(name: str, backend: Any) -> None:
    config = SoundConfig.model_validate({"features": "log-mel", **CONFIGS[name]})
    wave = VOICE() * np.float32(config.scale)
    if config.window_s is not None:
        wave = np.pad(wave, (0, round(config.window_s * config.sample_rate) - len(wave)))
    session = engine.Session(compose_features(config), backend=backend, threads=1, cache=None)
    found = session.run([wave[None]])[0][0][:, ::3]
    expected = ANSWERS[name]
    found = found[:, : expected.shape[1]]
    scale = np.abs(expected).max()
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() / scale < 1e-4


@pytest.mark.parametrize("rates", ["44100 16000", "8000 16000", "48000 16000", "16000 22050"])
def test_waves_are_resampled_as_librosa_does(rates: str) -> None:
    pytest.importorskip("soxr", reason="needs the extra audio")
    source, target = map(int, rates.split())
    decode = Decoder(target, "mean", 10)
    found = decode(Sound(wav(VOICE(0.4, source), source)))
    assert found.shape == ANSWERS[rates].shape
    assert np.abs(found - ANSWERS[rates]).max() < 1e-3


def test_long_waves_are_resampled_without_seams() -> None:
    soxr = pytest.importorskip("soxr", reason="needs the extra audio")
    wave = np.random.default_rng(0).standard_normal(700_000).astype(np.float32)
    found = Decoder(16_000, "mean", 60)(Sound(wav(wave, 44_100)))
    np.testing.assert_allclose(found, soxr.resample(wave, 44_100, 16_000), atol=1e-5)
    with pytest.raises(RequestTooLargeError):
        Decoder(16_000, "mean", 10)(Sound(wav(wave, 44_100)))
