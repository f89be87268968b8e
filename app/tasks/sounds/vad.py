"""Task vad: spans of speech in sounds (voice activity detection)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from app.errors import ConfigError
from app.schema import Body, Fraction, Section
from app.tasks.sounds.sound_task import SoundTask, Window
from app.tasks.task import Prediction, rounded

Seconds = Annotated[float, Field(ge=0, le=3_600)]
# Default difference between the thresholds, and the lowest threshold of silence; as silero-vad has them.
_GAP = 0.15
_LOWEST = 0.01


class VadConfig(Section):
    """Conversion of probabilities of speech to spans."""

    output: str | None = Field(
        default=None, description="Output with probabilities of speech, (N, 1) or (N, steps); default: the first."
    )
    threshold: Fraction = Field(default=0.5, description="Speech begins at this probability.")
    silence_threshold: Fraction | None = Field(
        default=None, description="Speech ends below this probability; default: threshold - 0.15."
    )
    min_speech_s: Seconds = Field(default=0.25, description="Shorter spans are left out.")
    min_silence_s: Seconds = Field(default=0.1, description="Shorter silence within a span does not end it.")
    pad_s: Seconds = Field(default=0.03, description="Added before and after each span.")
    probabilities: bool = Field(default=False, description="Return the probability of each step too.")


class SpanBody(Body):
    """Span of speech, in seconds, with its mean probability."""

    start: float
    end: float
    score: float


class SpeechBody(Body):
    """Spans of speech, and the length of the sound in seconds; in a stream, start of the speech that goes on."""

    spans: list[SpanBody]
    duration: float
    speech_start: float | None = None
    step: float = 0.0
    probabilities: list[float] = []


class VadTask(SoundTask[VadConfig]):
    """Spans of speech from one output of shape (N, 1), one value for each window, or (N, steps)."""

    NAME = "vad"
    CONFIG = VadConfig
    PARAMETERS = {
        "threshold": "probability at which speech begins",
        "silence_threshold": "probability below which it ends",
        "min_speech_s": "shortest span",
        "min_silence_s": "shortest silence between spans",
        "pad_s": "seconds added before and after each span",
        "probabilities": "true: the probability of each step",
    }
    FINDING = SpeechBody
    EXAMPLE = {"predictions": {"spans": [{"start": 0.4, "end": 1.9, "score": 0.97}], "duration": 2.5}}

    def predict_sound(self, windows: Sequence[Window], options: VadConfig) -> Prediction:
        """Return the spans of speech of a sound; of a stream, those that end in these windows."""
        clip = windows[-1].clip
        rows = [self._steps(window) for window in windows]
        step_s = clip.seconds / max(1, rows[0][0])
        probabilities = np.concatenate([row for _, row in rows])
        found: Prediction = {"spans": [], "duration": round(clip.end_s, 3)}
        if clip.memory is None:
            for start, end in find_spans(probabilities.tolist(), step_s, clip.end_s, options):
                found["spans"].append(_span(start, end, _mean(probabilities, start, end, step_s)))
        else:
            found |= _continued(clip.memory, probabilities.tolist(), step_s, options)
        return {**found, "step": rounded(step_s), "probabilities": probabilities} if options.probabilities else found

    def _steps(self, window: Window) -> tuple[int, NDArray[np.float32]]:
        """Return the number of steps of a window, and the probabilities of those that it answers for."""
        found = window.outputs.get(self._output)
        if found is None or found.size != max(found.shape, default=1):
            shape = "no row for each window" if found is None else f"shape {['N', *found.shape]}"
            raise ConfigError(f"output '{self._output}': found {shape}, expected (N, 1) or (N, steps)")
        values = found.reshape(-1).astype(np.float32)
        values = values if np.isfinite(values).all() else np.nan_to_num(values)
        clip = window.clip
        middles = clip.start_s + clip.seconds / max(1, len(values)) * (np.arange(len(values)) + 0.5)
        # Padding at the end of a sound belongs to its last step.
        is_kept = (middles >= clip.kept_s[0]) & ((middles < clip.kept_s[1]) | (clip.kept_s[1] >= clip.end_s))
        return len(values), values[is_kept & (middles - clip.seconds / max(1, len(values)) / 2 < clip.end_s)]


@dataclass(slots=True)
class SpeechState:
    """State of the search for spans after some steps.

    Attributes:
        at: number of steps.
        start: first step of the speech that goes on, or None.
        quiet: first step of the silence that may end it, or None.
        total: sum of the probabilities since the start, without those of that silence.
        rest: sum of the probabilities of that silence.
    """

    at: int = 0
    start: int | None = None
    quiet: int | None = None
    total: float = 0.0
    rest: float = 0.0

    def ended(
        self, probabilities: Sequence[float], step_s: float, config: VadConfig
    ) -> Iterator[tuple[int, int, float]]:
        """Yield first step, step after the last, and mean probability of each span of speech that ends.

        Speech begins at ``threshold``, and ends where the probability has been below ``silence_threshold`` for
        ``min_silence_s``, without reaching ``threshold`` in between.
        """
        low = config.silence_threshold
        low = max(config.threshold - _GAP, _LOWEST) if low is None else low
        for at, probability in enumerate(probabilities, self.at):
            self.at = at + 1
            if probability >= config.threshold:
                self.start, self.quiet = at if self.start is None else self.start, None
            elif probability < low and self.start is not None:
                self.quiet = at if self.quiet is None else self.quiet
                if (at - self.quiet) * step_s >= config.min_silence_s:
                    yield self.start, self.quiet, self.total / (self.quiet - self.start)
                    self.start = self.quiet = None
                    self.total = self.rest = 0.0
            if self.start is not None and self.quiet is not None:
                self.rest += probability
            elif self.start is not None:
                self.total, self.rest = self.total + self.rest + probability, 0.0


def find_spans(
    probabilities: Sequence[float], step_s: float, duration: float, config: VadConfig
) -> list[tuple[float, float]]:
    """Return start and end of the spans of speech of a whole sound, in seconds."""
    state = SpeechState()
    spans = [(start * step_s, end * step_s) for start, end, _ in state.ended(probabilities, step_s, config)]
    if state.start is not None:
        spans.append((state.start * step_s, duration))
    return _padded([span for span in spans if span[1] - span[0] > config.min_speech_s], config.pad_s, duration)


_STATE: Final = "vad"


def _continued(
    memory: dict[str, object], probabilities: Sequence[float], step_s: float, config: VadConfig
) -> Prediction:
    """Return the spans that end in these steps of a stream, and the start of the speech that goes on."""
    state = memory.setdefault(_STATE, SpeechState())
    assert isinstance(state, SpeechState)  # nothing else is kept by this name
    found = []
    for start, end, score in state.ended(probabilities, step_s, config):
        if (end - start) * step_s > config.min_speech_s:
            first, last = max(0.0, start * step_s - config.pad_s), end * step_s + config.pad_s
            found.append(_span(first, min(last, state.at * step_s), rounded(score)))
    start_s = None if state.start is None else round(max(0.0, state.start * step_s - config.pad_s), 3)
    return {"spans": found, "speech_start": start_s}


def _span(start: float, end: float, score: float) -> Prediction:
    return {"start": round(start, 3), "end": round(end, 3), "score": score}


def _padded(spans: Sequence[tuple[float, float]], pad_s: float, duration: float) -> list[tuple[float, float]]:
    """Return longer spans; two that would overlap meet in the middle of the silence."""
    found: list[tuple[float, float]] = []
    for at, (start, end) in enumerate(spans):
        before = start - spans[at - 1][1] if at else math.inf
        after = spans[at + 1][0] - end if at + 1 < len(spans) else math.inf
        first, last = (
            start - (pad_s if before >= 2 * pad_s else before / 2),
            end + (pad_s if after >= 2 * pad_s else after / 2),
        )
        found.append((max(0.0, first), min(duration, last)))
    return found


def _mean(probabilities: NDArray[np.float32], start: float, end: float, step_s: float) -> float:
    first = int(start / step_s)
    return rounded(float(probabilities[first : max(first + 1, math.ceil(end / step_s))].mean()))
