"""Task speech-to-text: the words of a sound, by CTC decoding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from app.errors import ConfigError
from app.memory.reservation import charge, charged
from app.schema import Body, NotNegative, Section
from app.tasks.ctc import collapse, step_probabilities
from app.tasks.sounds.beam_search import Step, WordList, likely_steps, search
from app.tasks.sounds.sound_task import SoundTask, Window
from app.tasks.sounds.vocabulary import Vocabulary, make_vocabulary
from app.tasks.task import Prediction, TaskContext, rounded

_SHAPE = "(N, steps, classes)"


class SpeechToTextConfig(Section):
    """Conversion of scores of steps to words. The tokens are given by ``labels``."""

    output: str | None = Field(default=None, description="Output with scores, (N, steps, classes); default: the first.")
    decoder: Literal["greedy", "beam"] = Field(
        default="greedy", description="greedy: the best token of each step; beam: the best sequence found by a search."
    )
    beam_width: Annotated[int, Field(ge=1, le=256)] = Field(
        default=16, description="beam: sequences that are kept after each step."
    )
    blank: NotNegative | str | None = Field(
        default=None,
        description="Class or token that separates equal tokens; default: the token with a usual name, the last class"
        " if it has no label, or else class 0.",
    )
    delimiter: str | None = Field(
        default=None, description="Token between words; default: | or a space, or the mark U+2581 at a token's start."
    )
    timestamps: bool = Field(default=True, description="Return the words with start and end, in seconds.")


class WordBody(Body):
    """Word of a text, with its time in seconds and the mean probability of its tokens."""

    word: str
    start: float
    end: float
    score: float


class TranscriptBody(Body):
    """Text of a sound, with the mean probability of its tokens, 0 without any, and the length of the sound."""

    text: str
    score: float
    duration: float
    words: list[WordBody] = []


class Steps(NamedTuple):
    """Steps of all windows of a sound, one after the other.

    Attributes:
        starts, ends: times of each step, in seconds.
    """

    best: NDArray[np.intp]
    probabilities: NDArray[np.float64]
    starts: NDArray[np.float64]
    ends: NDArray[np.float64]
    likely: list[Step]


class SpeechToTextTask(SoundTask[SpeechToTextConfig]):
    """Words from one output of shape (N, steps, classes)."""

    NAME = "speech-to-text"
    CONFIG = SpeechToTextConfig
    PARAMETERS = {
        "decoder": "greedy or beam",
        "beam_width": "sequences that a beam search keeps",
        "timestamps": "false: without the times of words",
    }
    FINDING = TranscriptBody
    EXAMPLE = {
        "predictions": {
            "text": "hello world",
            "score": 0.98,
            "duration": 1.5,
            "words": [
                {"word": "hello", "start": 0.2, "end": 0.6, "score": 0.99},
                {"word": "world", "start": 0.7, "end": 1.2, "score": 0.97},
            ],
        }
    }

    def __init__(self, config: SpeechToTextConfig, context: TaskContext) -> None:
        super().__init__(config, context)
        self._words = None if context.words is None else WordList(context.words)
        self._vocabulary: Vocabulary | None = None
        port = context.signature.output(self._output)
        classes = None if port is None or port.spec is None or len(port.spec.shape) != 3 else port.spec.shape[2]
        if isinstance(classes, int):
            self._vocabulary = self._make_vocabulary(classes)

    def predict_sound(self, windows: Sequence[Window], options: SpeechToTextConfig) -> Prediction:
        """Return the text of a sound, and its words."""
        if self._vocabulary is None:  # the file does not tell the number of classes
            self._vocabulary = self._make_vocabulary(self._row(windows[0], self._output, 2, _SHAPE).shape[1])
        vocabulary = self._vocabulary
        steps = self._steps(windows, vocabulary, is_beam=options.decoder == "beam")
        if options.decoder == "beam":
            found = search(steps.likely, vocabulary, options.beam_width, self._words)
            classes, firsts = list(found.classes), list(found.steps)
            ends = [first + 1 for first in firsts]
            scores = [dict(steps.likely[at])[each] for each, at in zip(classes, firsts, strict=True)]
            values = [math.exp(score) for score in scores]
        else:
            decoded = collapse(steps.best, steps.probabilities, vocabulary.blank)
            classes, firsts, ends = decoded.classes.tolist(), decoded.steps.tolist(), decoded.ends.tolist()
            values = decoded.probabilities.tolist()
        words = [
            {
                "word": word,
                "start": round(float(steps.starts[firsts[first]]), 3),
                "end": round(float(steps.ends[ends[last - 1] - 1]), 3),
                "score": rounded(sum(values[first:last]) / (last - first)),
            }
            for word, first, last in vocabulary.words(classes)
        ]
        row: Prediction = {
            "text": " ".join(str(word["word"]) for word in words),
            "score": rounded(sum(values) / len(values)) if values else 0.0,
            "duration": round(windows[-1].clip.end_s, 3),
        }
        return {**row, "words": words} if options.timestamps else row

    def _make_vocabulary(self, classes: int) -> Vocabulary:
        config, labels = self._config, self._context.labels
        return make_vocabulary(labels, classes, blank=config.blank, delimiter=config.delimiter)

    def _steps(self, windows: Sequence[Window], vocabulary: Vocabulary, *, is_beam: bool) -> Steps:
        """Return the steps of the windows that each answers for."""
        parts: list[Steps] = []
        for window in windows:
            scores = self._row(window, self._output, 2, _SHAPE)
            if not len(scores):
                continue
            if scores.shape[1] != len(vocabulary.tokens):
                raise ConfigError(
                    f"output '{self._output}': found {scores.shape[1]} classes, expected {len(vocabulary.tokens)}"
                )
            parts.append(_kept(window, scores, vocabulary.blank, is_beam=is_beam))
        if not parts:
            return Steps(np.zeros(0, np.intp), *(np.zeros(0),) * 3, likely=[])
        charge(sum(part.best.nbytes * 4 for part in parts))
        best, probabilities, starts, ends = (np.concatenate(each) for each in list(zip(*parts, strict=True))[:4])
        return Steps(best, probabilities, starts, ends, [step for part in parts for step in part.likely])


def _kept(window: Window, scores: NDArray[Any], blank: int, *, is_beam: bool) -> Steps:
    """Return the steps of a window that lie in the part that it answers for."""
    clip, seconds = window.clip, window.clip.seconds / len(scores)
    starts = np.asarray(clip.start_s + seconds * np.arange(len(scores)), np.float64)
    middles = starts + seconds / 2
    is_kept = (middles >= clip.kept_s[0]) & (middles < clip.kept_s[1])
    kept = scores[is_kept]
    with charged(8 * 3 * kept.size):
        values = step_probabilities(kept)
        values[~np.isfinite(values).all(axis=1)] = np.eye(scores.shape[1])[blank]  # no number counts as a blank
        best = values.argmax(axis=1)
        with np.errstate(divide="ignore"):
            likely = likely_steps(np.log(values), blank) if is_beam else []
    starts = starts[is_kept]
    most = values[np.arange(len(best)), best]
    return Steps(best, most, starts, np.minimum(starts + seconds, clip.end_s), likely)
