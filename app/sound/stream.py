"""Sound that arrives in pieces of any length: resampled, and cut into the windows of a model."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from app.errors import ConfigError, InputMismatchError, RequestTooLargeError
from app.memory.reservation import charged
from app.sound.config import SoundConfig
from app.sound.decode import open_resampler
from app.sound.sound import Chunk, Wave
from app.sound.windows import Windows

# Samples are 16-bit integers, little-endian.
_SAMPLE: Final = np.dtype("<i2")
_SCALE: Final = np.float32(1 / 32768)


class SoundStream:
    """Samples of one channel at one rate, in pieces; only the samples of the next window are kept.

    Attributes:
        start_s, end_s: beginning of the first and end of the last window that ended in the last piece, in seconds.

    Args:
        config: table [sound] of the model.
        windows: windows of the model.
        rate: samples per second of the pieces.

    Raises:
        ConfigError: the model has no windows of one size.
    """

    def __init__(self, config: SoundConfig, windows: Windows, rate: int) -> None:
        if windows.size is None:
            raise ConfigError("a stream of sound: the model takes sounds of any length, expected sound.window_s")
        self._config, self._windows, self._rate = config, windows, rate
        self._resampler = None if rate == config.sample_rate else open_resampler(rate, config.sample_rate)
        # Samples from `_offset` on, of which the context before the first window is silence.
        self._wave: Wave = np.zeros(windows.context, np.float32)
        self._offset = -windows.context
        self._before: np.float32 | None = None
        self._memory: dict[str, Any] = {}
        self.start_s = self.end_s = 0.0

    def take(self, data: bytes | bytearray, max_seconds: float) -> Chunk | None:
        """Return the windows that end in a piece, or None.

        Raises:
            InputMismatchError: it has half a sample.
            RequestTooLargeError: it is too long, or there is not enough memory.
        """
        samples, half = divmod(len(data), _SAMPLE.itemsize)
        if half:
            raise InputMismatchError(f"the sound: found {len(data)} bytes, expected samples of {_SAMPLE.itemsize}")
        if samples > max_seconds * self._rate:
            raise RequestTooLargeError(
                f"the sound is too long: found {samples / self._rate:,.1f} s, expected at most {max_seconds:g}",
                limit=max_seconds,
            )
        with charged(4 * (3 * samples + 4 * samples * self._config.sample_rate // self._rate)):
            wave = np.frombuffer(data, _SAMPLE).astype(np.float32) * _SCALE
            self._append(wave if self._resampler is None else self._resampler.resample_chunk(wave))
        return self._chunk()

    def _append(self, wave: Wave) -> None:
        if len(wave):
            wave, self._before = scaled(wave, self._config, self._before), wave[-1] * np.float32(self._config.scale)
            self._wave = np.concatenate([self._wave, wave])

    def _chunk(self) -> Chunk | None:
        """Return the whole windows, and drop what no later window needs."""
        wave, offset, windows = self._wave, self._offset, self._windows
        spans = windows.whole_spans(len(wave))
        if not spans:
            self.start_s = self.end_s
            return None
        rate = self._config.sample_rate
        self.start_s, self.end_s = (offset + spans[0][0]) / rate, (offset + spans[-1][1]) / rate
        kept = spans[-1][1] - windows.overlap - windows.context
        self._wave, self._offset = wave[kept:].copy(), offset + kept
        return Chunk(wave, tuple(spans), offset, self._memory)


def scaled(wave: Wave, config: SoundConfig, before: np.float32 | None = None) -> Wave:
    """Return samples with scale and preemphasis.

    Args:
        wave: samples, -1 to 1.
        config: table [sound] of the model.
        before: the scaled sample before them; None if they are the first.
    """
    wave = wave * np.float32(config.scale) if config.scale != 1 else wave
    if not config.preemphasis or config.frames == "kaldi" or not len(wave):
        return wave
    share = np.float32(config.preemphasis)
    first = wave[:1] if before is None else wave[:1] - share * before
    return np.concatenate([first, wave[1:] - share * wave[:-1]])
