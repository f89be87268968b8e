"""Tests of the tasks for texts against the answers of transformers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.errors import InputMismatchError
from app.text.text import Text
from app.text.tokenizer import Tokenizer
from tests.app.client import Client, serving
from tests.app.text_models import ANSWERS, DATA, TASKS, write_text_model

tokenizers = pytest.importorskip("tokenizers", reason="needs the extra text")


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    store = tmp_path_factory.mktemp("texts")
    for task in TASKS:
        write_text_model(store, task, "[text]\nmax_tokens = 64\n")
    write_text_model(store, "embedding", "[text]\nmax_tokens = 6\n", "short")
    with serving(store) as client:
        yield client


def ask(client: Client, model: str, text: object, **parameters: Any) -> Any:
    response = client.post(f"/models/{model}/infer", json={"text": text, "parameters": parameters})
    assert response.status_code == 200, response.text
    return response.json()["predictions"]


def test_embeddings_are_those_of_transformers(texts: Client) -> None:
    found = ask(texts, "embedding", ANSWERS["sentences"])
    np.testing.assert_allclose([each["embedding"] for each in found], ANSWERS["embedding"], atol=1e-5)


def test_a_text_has_the_same_embedding_alone_and_among_others(texts: Client) -> None:
    sentences = ANSWERS["sentences"] * 3
    together = ask(texts, "embedding", sentences)
    alone = [ask(texts, "embedding", sentence) for sentence in ANSWERS["sentences"]] * 3
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_allclose(one["embedding"], other["embedding"], atol=1e-6)
        assert one["tokens"] == other["tokens"]


def test_dimensions_keep_the_leading_values_at_length_one(texts: Client) -> None:
    whole = np.array(ask(texts, "embedding", "The cat")["embedding"])
    part = np.array(ask(texts, "embedding", "The cat", dimensions=5)["embedding"])
    np.testing.assert_allclose(part, whole[:5] / np.linalg.norm(whole[:5]), atol=1e-6)


def test_more_dimensions_than_there_are_are_refused(texts: Client) -> None:
    response = texts.post("/models/embedding/infer", json={"text": "The cat", "parameters": {"dimensions": 17}})
    assert response.status_code == 400
    assert response.json()["error"]["message"] == "dimensions: found 17, expected at most 16"


def test_classes_are_those_of_transformers(texts: Client) -> None:
    found = ask(texts, "text-classification", ANSWERS["sentences"])
    for one, expected in zip(found, ANSWERS["text-classification"], strict=True):
        assert [each["label"] for each in one] == [each["label"] for each in expected]
        np.testing.assert_allclose([each["probability"] for each in one], [each["score"] for each in expected], 1e-4)


def test_scores_of_pairs_are_those_of_transformers(texts: Client) -> None:
    found = ask(texts, "rerank", ANSWERS["pairs"])
    np.testing.assert_allclose([each["score"] for each in found], ANSWERS["rerank"], 1e-4)


@pytest.mark.parametrize("aggregation", ["simple", "first"])
def test_spans_are_those_of_transformers(texts: Client, aggregation: str) -> None:
    found = ask(texts, "token-classification", ANSWERS["sentences"], aggregation=aggregation)
    for sentence, one, expected in zip(
        ANSWERS["sentences"], found, ANSWERS[f"token-classification/{aggregation}"], strict=True
    ):
        assert [(each["label"], each["start"], each["end"]) for each in one] == [
            (each["entity_group"], each["start"], each["end"]) for each in expected
        ]
        np.testing.assert_allclose([each["score"] for each in one], [each["score"] for each in expected], 1e-4)
        assert all(each["text"] == sentence[each["start"] : each["end"]] for each in one)


def test_answers_are_those_of_transformers(texts: Client) -> None:
    found = ask(texts, "question-answering", ANSWERS["pairs"], max_answer_tokens=64)
    for one, expected in zip(found, ANSWERS["question-answering"], strict=True):
        assert {key: one[0][key] for key in ("answer", "start", "end")} == {
            key: expected[key] for key in ("answer", "start", "end")
        }
        assert one[0]["score"] == pytest.approx(expected["score"], rel=1e-4)


def test_words_for_masks_are_those_of_transformers(texts: Client) -> None:
    found = ask(texts, "fill-mask", ANSWERS["masked"], top_k=3)
    expected = [each if isinstance(each[0], list) else [each] for each in ANSWERS["fill-mask"]]
    for one, masks in zip(found, expected, strict=True):
        known = [(number, each["token"], each["score"]) for number, mask in enumerate(masks) for each in mask]
        assert [(each["mask"], each["index"]) for each in one] == [(number, index) for number, index, _ in known]
        np.testing.assert_allclose([each["probability"] for each in one], [score for *_, score in known], 1e-3)


def test_tokens_for_masks_are_limited_in_number_and_memory(tmp_path: Path) -> None:
    write_text_model(tmp_path, "fill-mask")
    with serving(tmp_path, max_bytes_in_flight=2_000_000) as client:
        many = client.post("/infer", json={"text": "[MASK]", "parameters": {"top_k": 1001}})
        assert (many.status_code, many.json()["error"]["message"]) == (400, "top_k: expected at most 1000, found 1001")
        large = client.post("/infer", json={"text": ["[MASK] [MASK]"] * 4, "parameters": {"top_k": 1000}})
        assert large.status_code == 413, large.text
        assert client.post("/infer", json={"text": "[MASK]", "parameters": {"top_k": 1000}}).status_code == 200


def test_token_ids_answer_as_their_text(texts: Client) -> None:
    tokenizer = tokenizers.Tokenizer.from_file(str(DATA / "tokenizer.json"))
    ids = tokenizer.encode(ANSWERS["sentences"][0]).ids
    by_ids, by_text = ask(texts, "embedding", [ids, ids]), ask(texts, "embedding", ANSWERS["sentences"][0])
    np.testing.assert_allclose(by_ids[0]["embedding"], by_text["embedding"], atol=1e-6)


def test_a_long_text_is_truncated_and_the_answer_says_so(texts: Client) -> None:
    found = ask(texts, "short", [ANSWERS["sentences"][0], "a"])
    assert [(each["tokens"], each["truncated"]) for each in found] == [(6, True), (3, False)]


def test_a_pair_is_expected_where_a_question_needs_a_context(texts: Client) -> None:
    response = texts.post("/models/question-answering/infer", json={"text": "Who?"})
    assert response.status_code == 422
    assert "expected a pair" in response.json()["error"]["message"]


def test_a_text_without_a_mask_is_refused(texts: Client) -> None:
    response = texts.post("/models/fill-mask/infer", json={"text": "no mask"})
    assert response.status_code == 422
    assert "found no [MASK]" in response.json()["error"]["message"]


def test_raw_outputs_are_answered_for_texts_of_one_length_only(texts: Client) -> None:
    one = texts.post("/models/embedding/infer", json={"text": "The cat", "outputs": True}).json()
    assert one["outputs"]["last_hidden_state"]["shape"][::2] == [1, 16]
    several = texts.post("/models/embedding/infer", json={"text": ["a", "The cat sat"], "outputs": True})
    assert several.status_code == 422
    assert "expected those of one run" in several.json()["error"]["message"]


def test_tensors_go_to_a_text_model_as_to_any_other(texts: Client) -> None:
    ids = np.array([[2, 5, 3]]).tolist()
    inputs = {"input_ids": ids, "attention_mask": [[1, 1, 1]], "token_type_ids": [[0, 0, 0]]}
    response = texts.infer("embedding", inputs)
    assert response.status_code == 200, response.text
    assert response.json()["outputs"]["last_hidden_state"]["shape"] == [1, 3, 16]


@pytest.mark.parametrize(
    ("text", "status", "message"),
    [
        (5, 400, "text: found 5, expected a string"),
        ([], 400, "text: found an empty list"),
        ([["a", "b", "c"]], 400, "text: found"),
        (["a", 1], 400, "text[1]: found 1"),
        ([[10**9]], 422, "found token id 1000000000"),
        ([[-1]], 422, "found token id -1"),
        ("a" * 200_001, 413, "found 200,001 characters"),
        (["a"] * 4_097, 413, "found 4,097 texts"),
    ],
)
def test_what_is_no_text_is_refused_by_name(texts: Client, text: object, status: int, message: str) -> None:
    response = texts.post("/models/embedding/infer", json={"text": text})
    assert response.status_code == status, response.text
    assert message in response.json()["error"]["message"]


def test_a_model_without_a_tokenizer_refuses_texts(zoo: Client) -> None:
    name = zoo.plane.store.entries[0].name
    response = zoo.post(f"/models/{name}/infer", json={"text": "The cat"})
    assert response.status_code == 422
    assert "the model takes no texts" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{}", "tokenizer.json: cannot be read"),
        ("[" * 100_000, "tokenizer.json: cannot be read"),
        ("", "tokenizer.json: cannot be read"),
        (None, "tokenizer.json: not found beside the model"),
    ],
)
def test_a_tokenizer_that_cannot_be_read_fails_its_model(tmp_path: Any, content: str | None, problem: str) -> None:
    folder = write_text_model(tmp_path, "embedding")
    file = folder / "1" / "tokenizer.json"
    file.unlink()
    if content is not None:
        file.write_text(content)
    with serving(tmp_path) as client:
        reason = client.get("/models/embedding").json()
        assert problem in str(reason)


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ("[text]\nmax_tokens = 3\n", "text.max_tokens: found 3"),
        ('[text]\ninput_ids = "nothing"\n', "text.input_ids: found 'nothing'"),
        ('[text]\nposition_ids = "input_ids"\n', "text.input_ids: missing"),
    ],
)
def test_a_text_table_that_does_not_fit_fails_its_model(tmp_path: Any, config: str, problem: str) -> None:
    write_text_model(tmp_path, "embedding", config)
    with serving(tmp_path) as client:
        assert problem in str(client.get("/models/embedding").json())


@pytest.mark.parametrize("text", ["a" * 200_000, "東" * 200_000, "a\u0301" * 100_000, "\0" * 200_000, " " * 200_000])
def test_a_text_of_one_character_many_times_is_answered_in_bounded_time(texts: Client, text: str) -> None:
    began = time.perf_counter()
    found = ask(texts, "embedding", text)
    assert found["tokens"] <= 64
    assert time.perf_counter() - began < 20


def test_a_lone_surrogate_is_refused_by_the_tokenizer() -> None:
    tokenizer = Tokenizer((DATA / "tokenizer.json").read_bytes(), 16)
    with pytest.raises(InputMismatchError, match="half of a surrogate pair"):
        tokenizer.encode([Text("a\ud800b")])


def test_a_pattern_that_never_ends_fails_its_text_only() -> None:
    lying = json.loads((DATA / "tokenizer.json").read_text())
    lying["pre_tokenizer"] = {
        "type": "Split", "pattern": {"Regex": "(a+)+b"}, "behavior": "Isolated", "invert": False
    }  # fmt: skip
    tokenizer = Tokenizer(json.dumps(lying).encode(), 16)
    with pytest.raises(InputMismatchError, match="a text cannot be tokenised"):
        tokenizer.encode([Text("a" * 100_000)])
    assert len(tokenizer.encode([Text("cat")])) == 1


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=60), min_size=1, max_size=5))
def test_tokens_are_those_of_the_library(strings: list[str]) -> None:
    path = DATA / "tokenizer.json"
    library, ours = tokenizers.Tokenizer.from_file(str(path)), Tokenizer(path.read_bytes(), 4_096)
    for string, encoding in zip(strings, ours.encode([Text(string) for string in strings]), strict=True):
        expected = library.encode(string)
        assert (encoding.ids, encoding.offsets) == (expected.ids, expected.offsets)
        for token, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            assert 0 <= start <= end <= len(string), token
