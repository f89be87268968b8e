"""CTC decoding with a dictionary, against RapidOCR's CTCLabelDecode (tests/data/decoders/record.py)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from app.errors import ConfigError
from app.images.placement import Placement
from app.tasks.images.text_recognition import TextRecognitionTask
from tests.app.client import serving
from tests.app.sample_models import elementwise, write_model
from tests.app.tasks.build import task_of

RECORD = Path(__file__).parents[3] / "data" / "decoders" / "ctc.npz"
WHOLE = Placement.identity((40, 8))


def read(scores: np.ndarray, labels: tuple[str, ...], placement: Placement = WHOLE, **options: object) -> list[dict]:
    task = task_of(TextRecognitionTask, labels)
    return task.predict({"out0": scores}, [placement] * len(scores), task.options(options))


def columns(*classes: int, of: int = 4, score: float = 0.9) -> np.ndarray:
    """One item whose columns have these best classes."""
    rows = np.full((len(classes), of), (1 - score) / (of - 1), np.float32)
    rows[np.arange(len(classes)), classes] = score
    return rows[None]


def test_texts_and_scores_are_those_of_rapidocr() -> None:
    with np.load(RECORD) as record:
        scores, labels = record["scores"], tuple(json.loads(str(record["characters"])))
        expected = json.loads(str(record["answers"]))
    found = read(scores, labels)
    assert [row["text"] for row in found] == [text for text, _ in expected]
    np.testing.assert_allclose([row["score"] for row in found], [score for _, score in expected], atol=1.1e-5)
    assert found[4] == {"text": "", "score": 0.0}


def test_logits_become_probabilities() -> None:
    with np.load(RECORD) as record:
        scores, labels = record["scores"], tuple(json.loads(str(record["characters"])))
    of_logits = read(np.log(np.maximum(scores, 1e-30)) + np.float32(3), labels)
    for logits, probabilities in zip(of_logits, read(scores, labels), strict=True):
        assert logits["text"] == probabilities["text"]
        assert logits["score"] == pytest.approx(probabilities["score"], abs=1e-5)


def test_characters_have_their_centre_in_the_picture() -> None:
    placement = Placement(picture=(200, 40), resized=(40, 8), canvas=(80, 8))
    found = read(columns(1, 1, 0, 1, 3), ("a", "b"), placement, characters=True)[0]
    assert found["text"] == "aa "
    assert [row["x"] for row in found["characters"]] == [40.0, 200.0, 200.0]  # columns are 80 wide, the last two behind
    assert [row["score"] for row in found["characters"]] == [0.9, 0.9, 0.9]


@pytest.mark.parametrize(
    ("labels", "text"), [(("a", "b", "c"), "c"), (("a", "b"), " "), (("a",), " "), (("", ""), " ")]
)
def test_missing_and_empty_symbols_are_spaces(labels: tuple[str, ...], text: str) -> None:
    assert read(columns(3), labels)[0]["text"] == text


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (None, "labels: found no characters, expected 9, or 8 without a space at the end: the model has 10 classes"),
        (tuple("abc"), "labels: found 3 characters, expected 9, or 8 without"),
        (tuple("abcdefghij"), "labels: found 10 characters, expected 9, or 8 without"),
    ],
)
def test_a_dictionary_of_the_wrong_length_is_refused(labels: tuple[str, ...] | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(columns(1, of=10), labels)


def test_it_is_refused_when_the_model_is_loaded(tmp_path: Path) -> None:
    config = 'task = "text-recognition"\nlabels = ["a", "b"]\n'
    write_model(tmp_path, "m", elementwise("mul(@0,1)", "(?,?,9)f32"), config=config)
    with serving(tmp_path) as client:
        assert "labels: found 2 characters, expected 8" in client.get("/models/m").text


def test_columns_that_are_not_numbers_are_blank() -> None:
    scores = columns(1, 1, 2, 2)
    scores[0, 1, 3] = np.nan
    scores[0, 3] = np.inf
    assert read(scores, ("a", "b"))[0] == {"text": "ab", "score": 0.9}
    assert read(np.full((2, 3, 4), np.nan, np.float32), ("a", "b")) == [{"text": "", "score": 0.0}] * 2


@pytest.mark.parametrize("shape", [(1, 4), (1, 3, 0), (1, 2, 3, 4)])
def test_outputs_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="expected scores"):
        read(np.zeros(shape, np.float32), ("a", "b"))


def test_no_columns_are_no_text() -> None:
    assert read(np.zeros((2, 0, 4), np.float32), ("a", "b")) == [{"text": "", "score": 0.0}] * 2
    assert read(np.zeros((0, 5, 4), np.float32), ("a", "b")) == []
