"""Decoding of CTC outputs against transformers, and against sums over all alignments."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import engine
from app.errors import ConfigError
from app.signature import Signature
from app.sound.sound import Clip
from app.tasks.sounds.beam_search import WordList, likely_steps, search
from app.tasks.sounds.speech_to_text import SpeechToTextConfig, SpeechToTextTask
from app.tasks.sounds.vocabulary import make_vocabulary
from app.tasks.task import TaskContext, TaskRun

DATA = Path(__file__).parents[3] / "data" / "sound"
ANSWERS: dict[str, Any] = json.loads((DATA / "tasks.json").read_text(encoding="utf-8"))
VOCABULARY = tuple(ANSWERS["vocabulary"])
STEP = 0.02


def port(name: str) -> engine.Port:
    return engine.Port(name=name, operand=name, spec=None, aliases=())


def task(
    labels: Sequence[str] | None = VOCABULARY, words: tuple[str, ...] | None = None, **config: Any
) -> SpeechToTextTask:
    signature = Signature(inputs=(port("in0"),), outputs=(port("out0"),))
    context = TaskContext(signature=signature, labels=None if labels is None else tuple(labels), words=words)
    return SpeechToTextTask(SpeechToTextConfig(**config), context)


def scores(steps: Sequence[int], classes: int = len(VOCABULARY)) -> NDArray[np.float32]:
    """Return scores (steps, classes) whose best classes are these."""
    found = np.random.default_rng(0).random((len(steps), classes), dtype=np.float32)
    found[np.arange(len(steps)), list(steps)] += 12
    return found


def transcribe(made: SpeechToTextTask, rows: NDArray[Any], **options: Any) -> dict[str, Any]:
    clip = Clip(0.0, len(rows) * STEP, len(rows) * STEP, (0.0, len(rows) * STEP))
    (found,) = made.predict_all([TaskRun({"out0": rows[None]}, [clip], [0])], made.options(options))
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("decoder", ["greedy", "beam"])
@pytest.mark.parametrize("answer", ANSWERS["transcripts"], ids=lambda each: f"{len(each['steps'])} steps")
def test_words_and_times_are_those_of_transformers(answer: dict[str, Any], decoder: str) -> None:
    found = transcribe(task(decoder=decoder), scores(answer["steps"]))
    assert found["text"] == answer["text"]
    assert [word["word"] for word in found["words"]] == [word for word, *_ in answer["words"]]
    times = np.array([[word["start"], word["end"]] for word in found["words"]]).reshape(-1, 2)
    expected = STEP * np.array([times for _, *times in answer["words"]]).reshape(-1, 2)
    np.testing.assert_allclose(times[:, 0], expected[:, 0], atol=1e-6)
    # A search knows where a token begins; it may last for two steps more.
    np.testing.assert_allclose(times[:, 1], expected[:, 1], atol=1e-6 if decoder == "greedy" else 2 * STEP + 1e-6)


def all_alignments(log_probabilities: NDArray[np.float64], blank: int) -> dict[tuple[int, ...], float]:
    """Return the probability of every sequence of classes: the sum over its alignments."""
    steps, classes = log_probabilities.shape
    found: dict[tuple[int, ...], float] = {}
    for path in itertools.product(range(classes), repeat=steps):
        kept = tuple(each for each, _ in itertools.groupby(path) if each != blank)
        probability = math.exp(sum(log_probabilities[at, each] for at, each in enumerate(path)))
        found[kept] = found.get(kept, 0.0) + probability
    return found


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("blank", [0, 3])
def test_a_wide_search_finds_the_most_probable_sequence(seed: int, blank: int) -> None:
    probabilities = np.random.default_rng(seed).dirichlet(3 * np.ones(4), 6)
    vocabulary = make_vocabulary("abcd", 4, blank=blank, delimiter=None)
    found = search(likely_steps(np.log(probabilities), blank), vocabulary, 256)
    every = all_alignments(np.log(probabilities), blank)
    best = max(every, key=lambda each: every[each])
    assert found.classes == best
    assert math.exp(found.score) == pytest.approx(every[best])


@pytest.mark.parametrize("seed", range(8))
def test_a_list_of_words_leaves_only_its_words(seed: int) -> None:
    labels, words = ("-", " ", "a", "b"), ("ab", "ba", "a")
    probabilities = np.random.default_rng(seed).dirichlet(3 * np.ones(4), 6)
    vocabulary = make_vocabulary(labels, 4, blank=0, delimiter=None)
    found = search(likely_steps(np.log(probabilities), 0), vocabulary, 256, WordList(words))
    every = {
        classes: probability
        for classes, probability in all_alignments(np.log(probabilities), 0).items()
        if all(word in words for word in "".join(labels[each] for each in classes).split(" ") if word)
    }
    best = max(every, key=lambda each: every[each])
    assert found.classes == best
    assert math.exp(found.score) == pytest.approx(every[best])


def test_tokens_of_sentencepiece_and_a_blank_at_the_end_make_words() -> None:
    labels = ("<unk>", "\u2581the", "\u2581c", "at", "s")
    found = transcribe(task(labels), scores([5, 1, 1, 2, 3, 5, 3, 4, 5], 6))
    assert found["text"] == "the catats"
    assert transcribe(task(labels, ("the", "cats"), decoder="beam"), scores([1, 2, 3, 5, 4], 6))["text"] == "the cats"


def test_a_blank_and_a_delimiter_can_be_named() -> None:
    labels = ("a", "b", "_", "#")
    found = transcribe(task(labels, blank="_", delimiter="#"), scores([0, 2, 0, 3, 1], 4))
    assert found["text"] == "aa b"
    assert transcribe(task(labels, blank=3), scores([0, 3, 1, 2], 4))["text"] == "ab_"


def test_windows_are_joined_without_their_overlap() -> None:
    made = task(timestamps=True)
    first, second = scores([5, 5, 4, 6, 6, 9]), scores([9, 6, 4, 7, 0, 0])
    clips = [Clip(0.0, 6.0, 6.0, (0.0, 5.0)), Clip(4.0, 9.0, 6.0, (5.0, 9.0))]
    runs = [TaskRun({"out0": first[None]}, clips[:1], [0]), TaskRun({"out0": second[None]}, clips[1:], [0])]
    (found,) = made.predict_all(runs, made.options({}))
    assert [(word["word"], word["start"], word["end"]) for word in found["words"]] == [
        ("E", 0.0, 2.0), ("T", 3.0, 6.0), ("A", 7.0, 8.0),
    ]  # fmt: skip
    assert found["duration"] == 9


def test_no_step_and_no_number_are_no_text() -> None:
    assert transcribe(task(), np.zeros((0, len(VOCABULARY)), np.float32)) == {
        "text": "", "score": 0.0, "duration": 0.0, "words": [],
    }  # fmt: skip
    for decoder in ("greedy", "beam"):
        rows = scores([5, 5, 6])
        rows[1] = np.nan
        assert transcribe(task(decoder=decoder), rows)["text"] == "ET"
        assert transcribe(task(decoder=decoder), np.full_like(rows, np.inf))["text"] == ""
    assert "words" not in transcribe(task(), scores([5]), timestamps=False)


@pytest.mark.parametrize(
    ("labels", "config", "message"),
    [
        (None, {}, "labels: found none, expected 4"),
        (("a",), {}, "labels: found 1, expected 4, one for each class of the model, or one fewer without the blank"),
        ("abcd", {"blank": "e"}, "speech-to-text.blank: found 'e', expected one of the labels"),
        ("abcd", {"blank": 4}, "speech-to-text.blank: found 4, expected less than 4"),
        ("abcd", {"delimiter": "|"}, r"speech-to-text.delimiter: found '\|', expected one of the labels"),
    ],
)
def test_a_vocabulary_that_does_not_fit_is_refused(labels: Any, config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        transcribe(task(labels, **config), scores([0], 4))
