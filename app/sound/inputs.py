"""Conversion of sounds to the inputs of a model: waves or features of windows, with their lengths."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import engine
from app.content import ContentRun, Converted
from app.errors import ConfigError, RequestTooLargeError
from app.memory.reservation import charge, charged, check, running
from app.sound.config import SoundConfig
from app.sound.decode import Decoder
from app.sound.features import compose_features
from app.sound.ports import SoundPorts
from app.sound.sound import MAX_SOUNDS, Chunk, Clip, Sounds, Wave
from app.sound.stream import SoundStream, scaled
from app.sound.windows import Windows

# Longest sound that runs at once, where its windows can share a run.
_MAX_RUN_S: Final = 60
# Added to the variance of a wave, which is 0 for silence; as Hugging Face's feature extractors have it.
_LITTLE: Final = 1e-7
# Lengths of the examples of a model that takes any length.
_EXAMPLES_S: Final = (4.0, 1.0)


class SoundInputs:
    """Conversion of sounds to the inputs of one model, for many threads at once.

    Args:
        ports: inputs of the model, without those of states.
        config: table [sound].
        max_seconds: longest sound.
        open_session: returns the session that computes features.
        is_stepwise: whether windows run one after the other, so that all have one length.

    Raises:
        ConfigError: the inputs are not those of a model for sounds, or the extra is not installed.
    """

    def __init__(
        self,
        ports: Sequence[engine.Port],
        config: SoundConfig,
        *,
        max_seconds: float,
        open_session: Callable[[engine.RuntimeGraph], engine.Session],
        is_stepwise: bool,
    ) -> None:
        self.config = config
        self._ports = SoundPorts(ports, config)
        self.port = self._ports.sound
        self._decode = Decoder(config.sample_rate, config.channel, max_seconds)
        self._is_stepwise = is_stepwise
        self._is_single = False
        self._windows = self._find_windows()
        self._features = None if config.features == "wave" else open_session(compose_features(config))

    def convert(self, sounds: Sounds, admit: Callable[[NDArray[Any]], None] = lambda batch: None) -> Converted:
        """Return the runs for the sounds, in order.

        Raises:
            ServiceError: a sound cannot be decoded, is too long, or the request was cancelled.
        """
        if len(sounds.items) > MAX_SOUNDS:
            raise RequestTooLargeError(
                f"too many sounds: found {len(sounds.items)}, expected at most {MAX_SOUNDS}",
                found=len(sounds.items),
                limit=MAX_SOUNDS,
            )
        runs: list[ContentRun] = []
        decode_s = 0.0
        for index, sound in enumerate(sounds.items):
            if isinstance(sound, Chunk):
                runs += self._runs_of_chunk(sound, index)
                continue
            start = time.perf_counter()
            wave = self._decode(sound)
            decode_s += time.perf_counter() - start
            runs += self._runs_of_whole(wave, index)
        return Converted(runs, decode_s)

    def open_stream(self, rate: int) -> SoundStream:
        """Return a stream of samples at a rate.

        Raises:
            ConfigError: the model has no windows, so that there is no time at which to run it.
        """
        return SoundStream(self.config, self._windows, rate)

    @property
    def takes_streams(self) -> bool:
        """Return whether the model has windows of one size."""
        return self._windows.size is not None

    @property
    def has_fixed_size(self) -> bool:
        """Return whether every window has one shape and runs by itself."""
        return self._windows.is_padded and not self._is_stepwise

    def is_light(self, sounds: Sounds) -> bool:
        """Return whether it is one window of a stream, without features; decoding belongs into a thread."""
        if self._features is not None or len(sounds.items) != 1:
            return False
        (sound,) = sounds.items
        return isinstance(sound, Chunk) and len(sound.spans) == 1

    def examples(self) -> list[ContentRun]:
        """Return the runs for one and several windows of a medium and a small length, one of medium length first.

        Compiled for these, a model with dynamic sizes has code for all sizes.
        """
        counts = (1,) if self._is_stepwise else (1, 3)
        return [self._example(length, count) for length in self._example_lengths() for count in counts]

    def _example(self, length: int, count: int) -> ContentRun:
        """Return the run for equal windows of silence."""
        spans, clip = [(0, length)] * count, self._windows.clip((0, length), length)
        tensors = self._tensors(self._windows.rows(np.zeros(length, np.float32), spans), [length] * count)
        return ContentRun(tensors, (clip,) * count, tuple(range(count)))

    def run_singly(self) -> None:
        """Run each window by itself, because the items of a batch depend on each other."""
        self._is_single = True

    def _example_lengths(self) -> list[int]:
        rate, size = self.config.sample_rate, self._windows.size
        return [round(seconds * rate) for seconds in _EXAMPLES_S] if size is None else [size]

    def prepare(self) -> None:
        """Compile the features for the examples."""
        if self._features is None:
            return
        for length in self._example_lengths():
            for count in (1, 3):
                shape = count, max(length, self._windows.least) + self._windows.context
                self._features.prepare(specs=[engine.TensorSpec(shape, np.dtype(np.float32))])

    def _runs_of_whole(self, wave: Wave, index: int) -> Iterator[ContentRun]:
        """Yield the runs for a whole sound."""
        windows = self._windows
        wave = scaled(wave, self.config)
        spans = windows.spans(len(wave))
        return self._runs_of(wave, spans, index, lambda span: windows.clip(span, len(wave)))

    def _runs_of_chunk(self, chunk: Chunk, index: int) -> Iterator[ContentRun]:
        """Yield the runs for a chunk of a stream."""

        def clip(span: tuple[int, int]) -> Clip:
            found = self._windows.clip((span[0] + chunk.offset, span[1] + chunk.offset), None)
            return found._replace(memory=chunk.memory)

        return self._runs_of(chunk.wave, chunk.spans, index, clip)

    def _runs_of(
        self, wave: Wave, spans: Sequence[tuple[int, int]], index: int, clip: Callable[[tuple[int, int]], Clip]
    ) -> Iterator[ContentRun]:
        config, windows = self.config, self._windows
        size = windows.size or len(wave)
        most = len(wave) if self._is_stepwise else max(1, _MAX_RUN_S * config.sample_rate // max(size, 1))
        most = 1 if self._is_single else most
        for together in windows.groups(spans, most):
            check()
            rows_bytes = 4 * len(together) * (windows.context + max(size, windows.least))
            with charged(rows_bytes):
                tensors = self._tensors(windows.rows(wave, together), [end - start for start, end in together])
                charge(sum(tensor.nbytes for tensor in tensors.values()))
            yield ContentRun(tensors, tuple(map(clip, together)), (index,) * len(together))

    def _tensors(self, rows: Wave, counts: list[int]) -> dict[str, NDArray[Any]]:
        """Return the inputs for rows, of which so many samples after the context are not padding."""
        filled = [self._windows.context + count for count in counts]
        if self.config.normalise == "wave":
            for row, count in zip(rows, filled, strict=True):
                valid = row[:count]
                valid[...] = (valid - valid.mean(dtype=np.float64)) / np.sqrt(valid.var(dtype=np.float64) + _LITTLE)
        if self._features is None:
            return self._ports.tensors(rows, filled)
        with running(self._features.estimate_bytes([rows])):
            features = self._features.run([rows])[0]
        frames = [max(1, self._frames(count)) for count in filled]
        length = self._ports.length
        return self._ports.tensors(features[..., :length], [min(count, features.shape[-1]) for count in frames])

    def _frames(self, samples: int) -> int:
        """Return the number of frames of so many samples."""
        config = self.config
        if config.frames == "centred":
            return 1 + samples // config.hop_length
        return 1 + (samples - self._frame) // config.hop_length

    @property
    def _frame(self) -> int:
        """Return the samples under a frame's row of the Fourier matrix."""
        return self.config.frame_length if self.config.frames == "kaldi" else self.config.n_fft

    def _find_windows(self) -> Windows:
        """Return the windows of the model.

        Raises:
            ConfigError: the input has a fixed size that the windows of the config do not fit, or needs a window.
        """
        config, fixed = self.config, self._ports.length
        context = round(config.context_s * config.sample_rate)
        size = None if config.window_s is None else round(config.window_s * config.sample_rate)
        if size is None and fixed is not None:
            size = self._samples(fixed) - context
        if size is None and self._is_stepwise:
            raise ConfigError("sound.window_s: missing, expected the seconds of each step of a model with states")
        if size is not None and fixed is not None:
            found = size + context if config.features == "wave" else self._frames(size + context)
            # One frame more is left out: centred frames count both ends.
            if size < 1 or found not in (fixed, fixed if config.features == "wave" else fixed + 1):
                raise ConfigError(
                    f"sound.window_s: found {found} values with the context, expected {fixed}, as input"
                    f" '{self.port.name}' has them"
                )
        overlap = round(config.overlap_s * config.sample_rate)
        if size is not None and not overlap < size:
            raise ConfigError(f"sound.overlap_s: found {overlap} samples, expected fewer than the {size} of a window")
        return Windows(
            size=size, overlap=0 if size is None else overlap, context=context,
            least=1 if config.features == "wave" else config.n_fft, is_padded=fixed is not None or self._is_stepwise,
            rate=config.sample_rate,
        )  # fmt: skip

    def _samples(self, length: int) -> int:
        """Return the samples that become so many samples or frames."""
        config = self.config
        if config.features == "wave":
            return length
        return (length - 1) * config.hop_length + (0 if config.frames == "centred" else self._frame)


def open_sound_inputs(
    ports: Sequence[engine.Port],
    config: SoundConfig | None,
    *,
    is_required: bool,
    max_seconds: float,
    open_session: Callable[[engine.RuntimeGraph], engine.Session],
    is_stepwise: bool,
) -> SoundInputs | None:
    """Return the sound inputs of a model, or None if it takes no sounds.

    Args:
        ports: inputs of the model, without those of states.
        config: table [sound], or None.
        is_required: whether the task needs sounds.
        max_seconds, open_session, is_stepwise: see ``SoundInputs``.

    Raises:
        ConfigError: as ``SoundInputs``.
    """
    if not is_required and config is None:
        return None
    return SoundInputs(
        ports, config or SoundConfig(), max_seconds=max_seconds, open_session=open_session, is_stepwise=is_stepwise
    )
