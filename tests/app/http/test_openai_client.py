"""OpenAI's own client against a server."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.app.sockets import listening
from tests.app.text_models import ANSWERS, write_text_model

openai = pytest.importorskip("openai", reason="needs openai, of the test extra")
pytest.importorskip("tokenizers", reason="needs the extra text")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    store = tmp_path_factory.mktemp("texts")
    write_text_model(store, "embedding", "[text]\nmax_tokens = 64\n")
    with (
        listening(store) as front,
        openai.OpenAI(base_url=f"http://127.0.0.1:{front.port}/v1", api_key="none", max_retries=0) as made,
    ):
        yield made


def test_models_are_listed(client: Any) -> None:
    assert [model.id for model in client.models.list()] == ["embedding"]
    assert client.models.retrieve("embedding").owned_by == "pnnx-serve"


@pytest.mark.parametrize("options", [{}, {"encoding_format": "float"}, {"encoding_format": "base64"}])
def test_embeddings_are_read(client: Any, options: dict[str, Any]) -> None:
    answer = client.embeddings.create(model="embedding", input=ANSWERS["sentences"], **options)
    assert answer.usage.total_tokens > 0
    vectors = [
        np.frombuffer(base64.b64decode(each.embedding), "<f4") if isinstance(each.embedding, str) else each.embedding
        for each in answer.data
    ]
    np.testing.assert_allclose(vectors, ANSWERS["embedding"], atol=1e-5)


def test_dimensions_and_token_ids_are_taken(client: Any) -> None:
    answer = client.embeddings.create(model="embedding", input=[[2, 5, 3], [2, 6, 7, 3]], dimensions=4)
    assert [len(each.embedding) for each in answer.data] == [4, 4]


def test_errors_are_those_of_the_client(client: Any) -> None:
    with pytest.raises(openai.NotFoundError, match="no model 'nothing'") as missing:
        client.embeddings.create(model="nothing", input="a")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError, match="found an empty list"):
        client.embeddings.create(model="embedding", input=[])
