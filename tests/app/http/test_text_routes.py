"""Tests of the routes for texts: OpenAI's, Cohere's and text-embeddings-inference's."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import numpy as np
import pytest

from tests.app.client import Client, serving
from tests.app.text_models import ANSWERS, write_text_model

pytest.importorskip("tokenizers", reason="needs the extra text")


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    store = tmp_path_factory.mktemp("texts")
    for task in ("embedding", "rerank", "text-classification"):
        write_text_model(store, task, "[text]\nmax_tokens = 64\n")
    with serving(store) as client:
        yield client


def test_embeddings_have_openai_s_form(texts: Client) -> None:
    body = {"model": "embedding", "input": ANSWERS["sentences"], "user": "someone"}
    answer = texts.post("/v1/embeddings", json=body).json()
    assert answer["object"] == "list"
    assert answer["model"] == "embedding"
    assert [each["index"] for each in answer["data"]] == [0, 1, 2, 3]
    assert {each["object"] for each in answer["data"]} == {"embedding"}
    assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] > 0
    np.testing.assert_allclose([each["embedding"] for each in answer["data"]], ANSWERS["embedding"], atol=1e-5)


def test_base64_holds_the_same_values(texts: Client) -> None:
    body = {"model": "embedding", "input": "The cat", "encoding_format": "base64"}
    text = texts.post("/v1/embeddings", json=body).json()["data"][0]["embedding"]
    plain = texts.post("/v1/embeddings", json={**body, "encoding_format": "float"}).json()["data"][0]["embedding"]
    np.testing.assert_array_equal(np.frombuffer(base64.b64decode(text), "<f4"), np.float32(plain))


def test_documents_come_by_falling_score(texts: Client) -> None:
    query, documents = "Who wrote?", [pair[1] for pair in ANSWERS["pairs"]] + ["The cat"]
    body = {"model": "rerank", "query": query, "documents": documents}
    answer = texts.post("/v1/rerank", json=body).json()
    scores = [each["relevance_score"] for each in answer["results"]]
    assert scores == sorted(scores, reverse=True)
    assert {each["index"] for each in answer["results"]} == {0, 1, 2}
    by_index = {each["index"]: each["relevance_score"] for each in answer["results"]}
    assert by_index[1] == pytest.approx(ANSWERS["rerank"][1], rel=1e-4)
    best = texts.post("/v1/rerank", json={**body, "top_n": 1, "return_documents": True}).json()["results"]
    assert [each["document"]["text"] for each in best] == [documents[answer["results"][0]["index"]]]


def test_the_models_are_listed(texts: Client) -> None:
    answer = texts.get("/v1/models").json()
    assert answer["object"] == "list"
    assert [each["id"] for each in answer["data"]] == ["embedding", "rerank", "text-classification"]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"model": "embedding"}, 400, "input: missing"),
        ({"model": "embedding", "input": []}, 400, "input: found an empty list"),
        ({"model": "embedding", "input": "a", "encoding_format": "x"}, 400, "encoding_format:"),
        ({"model": "embedding", "input": "a", "dimensions": 99}, 400, "dimensions: found 99"),
        ({"model": "nothing", "input": "a"}, 404, "no model 'nothing'"),
        ({"model": "rerank", "input": "a"}, 422, "found task 'rerank', expected 'embedding'"),
    ],
)
def test_errors_have_openai_s_form(texts: Client, body: dict[str, object], status: int, message: str) -> None:
    response = texts.post("/v1/embeddings", json=body)
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert message in error["message"]
    assert error["type"] == "invalid_request_error"
    assert {"param", "code"} <= set(error)


def test_half_a_surrogate_pair_is_refused(texts: Client) -> None:
    response = texts.post("/v1/embeddings", content=b'{"model": "embedding", "input": "a\\ud800b"}')
    assert response.status_code == 400
    assert "JSON" in response.json()["error"]["message"]


def test_the_routes_of_text_embeddings_inference_answer_in_its_form(texts: Client) -> None:
    vectors = texts.post("/embed", json={"model": "embedding", "inputs": ANSWERS["sentences"]}).json()
    np.testing.assert_allclose(vectors, ANSWERS["embedding"], atol=1e-5)
    query, document = ANSWERS["pairs"][0]
    ranked = texts.post("/rerank", json={"model": "rerank", "query": query, "texts": [document, "x"]}).json()
    assert {each["index"]: each["score"] for each in ranked}[0] == pytest.approx(ANSWERS["rerank"][0], rel=1e-4)
    classes = texts.post("/predict", json={"model": "text-classification", "inputs": ANSWERS["sentences"][0]}).json()
    assert [each["label"] for each in classes] == [each["label"] for each in ANSWERS["text-classification"][0]]


def test_a_list_of_strings_is_a_pair_for_predict_and_a_batch_is_a_list_of_lists(texts: Client) -> None:
    first, second = ANSWERS["sentences"][:2]
    name = {"model": "text-classification"}

    def asked(inputs: object, path: str = "/predict", **more: object) -> object:
        response = texts.post(path, json={**name, "inputs": inputs, **more})
        assert response.status_code == 200, response.text
        return response.json()

    def usual(text: object, **parameters: object) -> list[object]:
        body = {"text": text, "parameters": {"top_k": 1000, **parameters}}
        found = texts.post("/models/text-classification/infer", json=body).json()["predictions"]
        return [{"score": each["probability"], "label": each["label"]} for each in found]

    one, two, pair = usual(first), usual(second), usual([[first, second]])
    assert asked(first) == asked([first]) == one
    assert asked([first, second]) == pair
    assert asked([[first]]) == [one]
    assert asked([[first], [second], [first, second]]) == [one, two, pair]
    assert asked([[first], [second]], "/") == [one, two]
    assert asked(first, raw_scores=True) == usual(first, activation="none")
    assert asked([2, 5, 3]) == usual([[2, 5, 3]])


@pytest.mark.parametrize(
    "inputs", [[], ["a", "b", "c"], ["a", ["b"]], {}, 7, [[]], [["a", "b", "c"]], [["a"], 3], None]
)
def test_other_inputs_of_predict_are_refused(texts: Client, inputs: object) -> None:
    for path in ("/predict", "/"):
        response = texts.post(path, json={"model": "text-classification", "inputs": inputs})
        assert response.status_code == 400, response.text
        assert "inputs" in response.json()["error"]["message"]


def test_vectors_keep_their_length_on_request(texts: Client) -> None:
    (scaled,), (kept,), (same,) = (
        texts.post("/embed", json={"model": "embedding", "inputs": "The cat", **more}).json()
        for more in ({}, {"normalize": False}, {"normalize": True})
    )
    assert scaled == same
    assert np.linalg.norm(kept) != pytest.approx(1, abs=0.01)
    np.testing.assert_allclose(np.divide(kept, np.linalg.norm(kept)), scaled, atol=1e-6)


@pytest.mark.parametrize("more", [{"truncation_direction": "Left"}, {"prompt_name": "query"}, {"normalize": "often"}])
def test_what_embed_cannot_do_is_refused(texts: Client, more: dict[str, object]) -> None:
    response = texts.post("/embed", json={"model": "embedding", "inputs": "The cat", **more})
    assert response.status_code == 400, response.text
    assert next(iter(more)) in response.json()["error"]["message"]


def test_a_request_without_a_model_means_the_only_one_of_the_task(texts: Client) -> None:
    vectors = texts.post("/embed", json={"inputs": "The cat"})
    assert vectors.status_code == 200, vectors.text
    assert len(vectors.json()[0]) == 16


def test_a_text_that_is_too_long_is_truncated_only_on_request(texts: Client) -> None:
    long = {"model": "embedding", "inputs": "The cat sat on the mat. " * 40}
    refused = texts.post("/embed", json=long)
    assert refused.status_code == 413
    assert "inputs[0]" in refused.json()["error"]["message"]
    assert texts.post("/embed", json={**long, "truncate": True}).status_code == 200
    pairs = {"model": "rerank", "query": "cat", "texts": ["The cat", long["inputs"]]}
    refused = texts.post("/rerank", json=pairs)
    assert (refused.status_code, "texts[1]" in refused.text) == (413, True)
    assert texts.post("/rerank", json={**pairs, "truncate": True}).status_code == 200
    assert texts.post("/v1/embeddings", json={"model": "embedding", "input": long["inputs"]}).json()["truncated"] == [0]


def test_tokens_have_their_ids_and_places(texts: Client) -> None:
    sentence = ANSWERS["sentences"][3]
    (tokens,) = texts.post("/tokenize", json={"model": "embedding", "inputs": sentence}).json()
    assert tokens[0]["special"]
    assert tokens[0]["start"] is None
    covered = "".join(sentence[each["start"] : each["stop"]] for each in tokens if not each["special"])
    assert covered == sentence.replace(" ", "")
    (plain,) = texts.post(
        "/tokenize", json={"model": "embedding", "inputs": sentence, "add_special_tokens": False}
    ).json()
    assert [each["id"] for each in plain] == [each["id"] for each in tokens if not each["special"]]
