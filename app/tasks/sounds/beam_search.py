"""Prefix beam search over the outputs of a CTC model, with an optional list of words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.memory.reservation import check
from app.tasks.sounds.vocabulary import Vocabulary

# Tokens of a step whose logarithmic probability is lower are left out, except the best.
_LOWEST: Final = -9.0
_MOST_TOKENS: Final = 32
_NEVER: Final = -math.inf

# A step: classes and their logarithmic probabilities, in any order.
Step: TypeAlias = list[tuple[int, float]]


class Hypothesis(NamedTuple):
    """Sequence of classes, and the step at which each was found.

    Attributes:
        score: logarithmic probability of all alignments that were followed.
    """

    classes: tuple[int, ...]
    steps: tuple[int, ...]
    score: float


class WordList:
    """Words that may be recognised.

    Args:
        words: the words.
    """

    def __init__(self, words: Iterable[str]) -> None:
        self._words = frozenset(words)
        self._beginnings = frozenset(word[:end] for word in self._words for end in range(len(word) + 1))

    def can_begin(self, text: str) -> bool:
        """Return whether a word begins like this."""
        return text in self._beginnings

    def has(self, word: str) -> bool:
        """Return whether it is a word; no text is."""
        return not word or word in self._words


@dataclass(slots=True)
class _Beam:
    """Prefix of a sequence: probabilities of the alignments that end in a blank and in its last class.

    word: the text since the last word ended.
    """

    word: str
    steps: tuple[int, ...]
    blank: float = _NEVER
    last: float = _NEVER
    total: float = field(default=_NEVER, init=False)

    def add(self, blank: float, last: float) -> None:
        self.blank, self.last = _sum(self.blank, blank), _sum(self.last, last)
        self.total = _sum(self.blank, self.last)


def likely_steps(log_probabilities: NDArray[np.float64], blank: int) -> list[Step]:
    """Return for each step (steps, classes) the classes that a search follows: the likely ones, and the blank."""
    count = min(_MOST_TOKENS, log_probabilities.shape[1])
    best = np.argpartition(-log_probabilities, count - 1, axis=1)[:, :count]
    values = np.take_along_axis(log_probabilities, best, axis=1)
    found: list[Step] = []
    for row, classes, scores in zip(log_probabilities, best.tolist(), values.tolist(), strict=True):
        lowest = min(_LOWEST, max(scores))
        step = [(each, score) for each, score in zip(classes, scores, strict=True) if score >= lowest and each != blank]
        found.append([(blank, float(row[blank])), *step])
    return found


def search(steps: Sequence[Step], vocabulary: Vocabulary, width: int, words: WordList | None = None) -> Hypothesis:
    """Return the most probable sequence of classes.

    Args:
        steps: see ``likely_steps``; the blank is the first of each.
        vocabulary: tokens of the model.
        width: number of prefixes kept after each step.
        words: words that may be recognised; None for any.

    Raises:
        DeadlineExceededError: the request was cancelled.
    """
    beams: dict[tuple[int, ...], _Beam] = {(): _Beam("", ())}
    beams[()].add(0.0, _NEVER)
    for at, step in enumerate(steps):
        check()
        following: dict[tuple[int, ...], _Beam] = {}
        for prefix, beam in beams.items():
            _follow(prefix, beam, step, at, following, vocabulary, words)
        best = sorted(following.items(), key=lambda item: item[1].total, reverse=True)[:width]
        beams = dict(best)
    ended = [item for item in beams.items() if words is None or words.has(item[1].word)]
    classes, beam = max(ended or beams.items(), key=lambda item: item[1].total)
    return Hypothesis(classes, beam.steps, beam.total)


def _follow(
    prefix: tuple[int, ...],
    beam: _Beam,
    step: Step,
    at: int,
    following: dict[tuple[int, ...], _Beam],
    vocabulary: Vocabulary,
    words: WordList | None,
) -> None:
    """Add the continuations of a prefix by one step."""
    (_, blank), *others = step
    same = _continued(following, prefix, beam.word, beam.steps)
    same.add(beam.total + blank, _NEVER)
    for each, score in others:
        if prefix and each == prefix[-1]:
            same.add(_NEVER, beam.last + score)
            before = beam.blank  # the same class again needs a blank between
        else:
            before = beam.total
        word = _next_word(beam.word, each, vocabulary, words)
        if word is not None and before > _NEVER:
            longer = _continued(following, (*prefix, each), word, (*beam.steps, at))
            longer.add(_NEVER, before + score)


def _continued(
    following: dict[tuple[int, ...], _Beam], prefix: tuple[int, ...], word: str, steps: tuple[int, ...]
) -> _Beam:
    found = following.get(prefix)
    if found is None:
        found = following[prefix] = _Beam(word, steps)
    return found


def _next_word(word: str, each: int, vocabulary: Vocabulary, words: WordList | None) -> str | None:
    """Return the text since the last word ended, after one class more; None if no word continues so."""
    if words is None:
        return ""
    text, begins = vocabulary.tokens[each]
    if begins and not words.has(word):
        return None
    longer = text if begins else word + text
    return longer if words.can_begin(longer) else None


def _sum(a: float, b: float) -> float:
    """Return log(exp(a) + exp(b))."""
    if a < b:
        a, b = b, a
    return a if b == _NEVER else a + math.log1p(math.exp(b - a))
