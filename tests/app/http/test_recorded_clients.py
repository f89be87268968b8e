"""Requests of LangChain, llama-index and huggingface_hub, recorded from them, byte by byte.

The clients themselves run too, if they are installed; see tests/data/text/record_clients.py.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.app.client import Client, serving
from tests.app.sockets import listening
from tests.app.text_models import ANSWERS, DATA, write_text_model

pytest.importorskip("tokenizers", reason="needs the extra text")
RECORDED: dict[str, Any] = json.loads((DATA / "clients.json").read_text(encoding="utf-8"))
EXPECTED = [ANSWERS["embedding"][ANSWERS["sentences"].index(text)] for text in RECORDED["texts"]]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    store = tmp_path_factory.mktemp("texts")
    write_text_model(store, "embedding", "[text]\nmax_tokens = 64\n")
    with serving(store) as client:
        yield client


def vectors(answer: Any) -> list[Any]:
    """Return the vectors of an answer of OpenAI or of text-embeddings-inference."""
    if isinstance(answer, list):
        return answer
    found = [each["embedding"] for each in answer["data"]]
    return [np.frombuffer(base64.b64decode(each), "<f4") if isinstance(each, str) else each for each in found]


@pytest.mark.parametrize("request_", RECORDED["requests"], ids=[each["client"] for each in RECORDED["requests"]])
def test_a_recorded_request_is_answered(texts: Client, request_: dict[str, Any]) -> None:
    answer = texts.post(request_["path"], content=request_["body"].encode(), headers=request_["headers"])
    assert answer.status_code == 200, answer.text
    found = vectors(answer.json())
    np.testing.assert_allclose(found, EXPECTED[: len(found)], atol=1e-5)


def test_the_route_of_no_name_classifies_too(tmp_path_factory: pytest.TempPathFactory) -> None:
    store = tmp_path_factory.mktemp("classes")
    write_text_model(store, "text-classification", "[text]\nmax_tokens = 64\n")
    with serving(store) as client:
        found = client.post("/", json={"inputs": ANSWERS["sentences"][0], "parameters": {}}).json()
    assert [each["label"] for each in found] == [each["label"] for each in ANSWERS["text-classification"][0]]


def test_the_clients_themselves_read_the_answers(tmp_path_factory: pytest.TempPathFactory) -> None:
    pytest.importorskip("langchain_openai")
    from tests.data.text.record_clients import clients

    store = tmp_path_factory.mktemp("clients")
    write_text_model(store, "embedding", "[text]\nmax_tokens = 64\n")
    with listening(store) as front:
        for name, embed in clients(f"http://127.0.0.1:{front.port}").items():
            found = embed()
            np.testing.assert_allclose(found, EXPECTED[: len(found)], atol=1e-5, err_msg=name)
