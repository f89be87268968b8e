"""Record features and resampled waves of other libraries; see tests/app/sound/test_features.py.

    pip install librosa torchaudio soxr
    python tests/data/sound/record.py

The sounds are drawn from a seed, so the file holds the answers only, each of a part of the frames.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).parent / "features.npz"
RATE = 16_000


def voice(seconds: float = 1.3, rate: int = RATE) -> np.ndarray:
    """Return a sound with the properties of speech: harmonics that glide, pauses, noise."""
    chance = np.random.default_rng(7)
    t = np.arange(round(seconds * rate)) / rate
    pitch = 120 + 40 * np.sin(2 * np.pi * 1.5 * t)
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    harmonics = sum(np.sin(k * phase) / k * np.exp(-((k * 120 - 900) ** 2) / 2e6) for k in range(1, 30))
    loudness = np.clip(np.sin(2 * np.pi * 2.2 * t), 0, 1)
    wave = 0.2 * loudness * harmonics + 0.003 * chance.standard_normal(len(t))
    return wave.astype(np.float32)


def by_librosa(wave: np.ndarray) -> dict[str, np.ndarray]:
    import librosa

    mel: dict[str, Any] = {"y": wave, "sr": RATE, "n_fft": 400, "hop_length": 160}
    power = librosa.feature.melspectrogram(**mel, n_mels=80)
    htk = librosa.feature.melspectrogram(
        **mel, n_mels=40, win_length=320, htk=True, norm=None, fmin=60, fmax=7_600, power=1.0, pad_mode="reflect"
    )
    return {
        "librosa db": librosa.power_to_db(power, top_db=80),
        "librosa ln": np.log(np.maximum(htk, 1e-5)),
        "librosa mfcc": librosa.feature.mfcc(**mel, n_mfcc=20, n_mels=64),
        "librosa inside": np.log10(
            librosa.feature.melspectrogram(**mel, n_mels=32, center=False, window="hamming") + 1e-6
        ),
    }


def by_torchaudio(wave: np.ndarray) -> dict[str, np.ndarray]:
    import torch
    import torchaudio

    x = torch.from_numpy(wave)
    mel = torchaudio.transforms.MelSpectrogram(RATE, n_fft=512, win_length=400, hop_length=160, n_mels=64)
    mfcc = torchaudio.transforms.MFCC(RATE, 13, melkwargs={"n_fft": 400, "hop_length": 160, "n_mels": 40})
    kaldi = torchaudio.compliance.kaldi.fbank(x[None], num_mel_bins=80, sample_frequency=RATE)
    hamming = torchaudio.compliance.kaldi.fbank(x[None] * 32768, num_mel_bins=40, window_type="hamming", high_freq=-400)
    return {
        "torchaudio ln": torch.log(mel(x) + 1e-6).numpy(),
        "torchaudio mfcc": mfcc(x).numpy(),
        "torchaudio kaldi": kaldi.T.numpy(),
        "torchaudio kaldi hamming": hamming.T.numpy(),
    }


def by_whisper(wave: np.ndarray) -> dict[str, np.ndarray]:
    from transformers import WhisperFeatureExtractor

    padded = WhisperFeatureExtractor(feature_size=80)(wave, sampling_rate=RATE, return_tensors="np")
    return {"transformers whisper": padded["input_features"][0][:, :300]}


def resampled() -> dict[str, np.ndarray]:
    import librosa

    pairs = ((44_100, 16_000), (8_000, 16_000), (48_000, 16_000), (16_000, 22_050))
    return {f"{a} {b}": librosa.resample(voice(0.4, a), orig_sr=a, target_sr=b) for a, b in pairs}


def main() -> None:
    warnings.simplefilter("ignore")
    wave = voice()
    answers: dict[str, np.ndarray] = {}
    known = {**(np.load(FILE) if FILE.exists() else {})}
    for record in (lambda: by_librosa(wave), lambda: by_torchaudio(wave), lambda: by_whisper(wave), resampled):
        try:
            answers |= record()
        except ImportError as error:
            print(f"left as it was: {error}")
    # Every third frame, to keep the file small; resampled waves are whole.
    thinned = {
        name: (array[..., ::3] if array.ndim == 2 else array).astype(np.float32) for name, array in answers.items()
    }
    np.savez_compressed(FILE, **(known | thinned))


if __name__ == "__main__":
    main()
