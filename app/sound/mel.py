"""Mel bands: triangular filters over the bins of a spectrum."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.sound.config import SoundConfig

Values = NDArray[np.float64]

# Slaney's scale is linear up to 1,000 Hz, then logarithmic: 27 mels for a factor of 6.4.
_LINEAR_HZ: Final = 200 / 3
_BREAK_HZ: Final = 1_000.0
_BREAK_MEL: Final = _BREAK_HZ / _LINEAR_HZ
_STEP: Final = np.log(6.4) / 27


def mel_filters(config: SoundConfig) -> Values:
    """Return the weight of each bin in each band, (n_mels, n_fft // 2 + 1)."""
    bins = np.asarray(np.arange(config.n_fft // 2 + 1) * (config.sample_rate / config.n_fft), np.float64)
    scale = config.mel_scale
    lowest, highest = to_mel(np.array([config.fmin, config.highest]), scale)
    mels: Values = np.linspace(lowest, highest, config.n_mels + 2, dtype=np.float64)
    # Triangles over mels or over hertz.
    places, edges = (to_mel(bins, scale), mels) if scale == "kaldi" else (bins, to_hertz(mels, scale))
    left, middle, right = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising, falling = (places - left) / (middle - left), (right - places) / (right - middle)
    filters = np.maximum(0, np.minimum(rising, falling))
    if scale == "kaldi":
        filters[:, -1] = 0  # Kaldi leaves out the bin of half the sample rate
    return filters * (2 / (right - left)) if config.mel_norm == "slaney" else filters


def to_mel(values: Values, scale: str) -> Values:
    """Return frequencies in mels."""
    if scale != "slaney":
        return np.asarray(1127 * np.log1p(values / 700)) if scale == "kaldi" else 2595 * np.log10(1 + values / 700)
    above = _BREAK_MEL + np.log(np.maximum(values, _BREAK_HZ) / _BREAK_HZ) / _STEP
    return np.where(values < _BREAK_HZ, values / _LINEAR_HZ, above)


def to_hertz(mels: Values, scale: str) -> Values:
    """Return mels as frequencies."""
    if scale != "slaney":
        return np.asarray(700 * (10 ** (mels / 2595) - 1))
    above = _BREAK_HZ * np.exp(_STEP * (np.maximum(mels, _BREAK_MEL) - _BREAK_MEL))
    return np.where(mels < _BREAK_MEL, mels * _LINEAR_HZ, above)
