"""Task question-answering: the part of a context that answers a question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from app.errors import ConfigError, InputMismatchError
from app.memory.reservation import check
from app.schema import Body, Positive, Section
from app.tasks.probabilities import activate
from app.tasks.task import Outputs, Prediction, TaskContext, TextTask, rounded
from app.text.text import Encoding


class QuestionAnsweringConfig(Section):
    """Conversion of scores of start and end to answers."""

    start_output: str | None = Field(default=None, description="Output with scores of starts, (N, L); default: first.")
    end_output: str | None = Field(default=None, description="Output with scores of ends, (N, L); default: second.")
    top_k: Positive = Field(default=1, description="Number of answers returned, best first.")
    max_answer_tokens: Positive = Field(default=30, description="Most tokens of an answer.")


class AnswerBody(Body):
    """Answer: a span of the context, in characters."""

    answer: str
    score: float
    start: int
    end: int


class QuestionAnsweringTask(TextTask[QuestionAnsweringConfig]):
    """Answers from two outputs of shape (N, L); a text is a pair of question and context."""

    NAME = "question-answering"
    CONFIG = QuestionAnsweringConfig
    PARAMETERS = {"top_k": "how many answers", "max_answer_tokens": "most tokens of an answer"}
    FINDING = list[AnswerBody]
    EXAMPLE = {"predictions": [{"answer": "in Vienna", "score": 0.91, "start": 8, "end": 17}]}

    def __init__(self, config: QuestionAnsweringConfig, context: TaskContext) -> None:
        super().__init__(config, context)
        names = context.signature.output_names
        if len(names) < 2:
            raise ConfigError(f"task {self.NAME}: found {len(names)} outputs, expected scores of starts and of ends")
        self._start = self._named_output("start_output", config.start_output or names[0])
        self._end = self._named_output("end_output", config.end_output or names[1])

    def predict(
        self, outputs: Outputs, encodings: Sequence[Encoding], options: QuestionAnsweringConfig
    ) -> list[list[Prediction]]:
        """Return the best answers to each question, from different spans of its context."""
        starts, ends = outputs[self._start], outputs[self._end]
        for name, scores in ((self._start, starts), (self._end, ends)):
            if scores.ndim != 2 or len(scores) != len(encodings):
                raise ConfigError(f"output '{name}': found shape {list(scores.shape)}, expected (N, tokens)")
        return [_answers(*each, options) for each in zip(starts, ends, encodings, strict=True)]


def _answers(
    starts: NDArray[Any], ends: NDArray[Any], encoding: Encoding, options: QuestionAnsweringConfig
) -> list[Prediction]:
    if encoding.text.second is None:
        raise InputMismatchError('the text: found one string, expected a pair: {"text": [[question, context]]}')
    inside = np.array([sequence == 1 for sequence in encoding.sequences])
    count = len(encoding.ids)
    starts, ends = (
        activate(np.where(inside, scores[:count].astype(np.float64), -np.inf)[None], "softmax")[0]
        for scores in (starts, ends)
    )
    if not inside.any():
        return []
    check()
    found = [
        (starts[first] * ends[last], first, last)
        for first in np.flatnonzero(inside).tolist()
        for last in range(first, min(first + options.max_answer_tokens, count))
        if inside[last]
    ]
    best = sorted(found, key=lambda each: -each[0])[: options.top_k]
    return [_answer(encoding, first, last, float(score)) for score, first, last in best]


def _answer(encoding: Encoding, first: int, last: int, score: float) -> Prediction:
    start, end, text = encoding.covered(first, last)
    return {"answer": text, "score": rounded(score), "start": start, "end": end}
