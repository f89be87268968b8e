"""Values that steps take from the request and from each other: texts, tensors, constants, best predictions."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.app.client import Client, serving
from tests.app.pipelines.conftest import write_pipeline
from tests.app.sample_models import elementwise, write_classifier, write_detector, write_model
from tests.app.text_models import write_text_model

SUM = """
[[step]]
name = "twice"
model = "double"
input = "x"

[[step]]
name = "sum"
model = "add"
input = { in0 = "twice.outputs.out0", in1 = [100, 200] }
"""
SPANS = """
[[step]]
name = "entities"
model = "token-classification"
input = "text"

[[step]]
name = "vector"
model = "embedding"
input = "entities.text"
where = { entities.label = "LOC" }
"""
VECTOR = """
[[step]]
name = "vector"
model = "embedding"
input = "text"

[[step]]
name = "score"
model = "half"
input = "vector.embedding"
"""
CHOICE = """
[[step]]
name = "kind"
model = "shades"
input = "picture"

[[step]]
name = "again"
model = "shades"
input = "picture"
where = { kind.label = "left", kind.probability = 0.5 }
"""
NESTED = """
[[step]]
name = "find"
model = "boxes"
input = "image"

[[step]]
name = "inner"
model = "choice"
crop = "find.box"
"""
WIDTH = 4


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    store = tmp_path_factory.mktemp("flows")
    write_model(store, "double", elementwise("mul(@0,2)", "(?,2)f32"))
    write_model(store, "add", elementwise("add(@0,@1)", "(?,2)f32", "(?,2)f32"))
    write_classifier(store)
    write_detector(store)
    write_text_model(store, "embedding")
    write_text_model(store, "token-classification")
    with serving(store, warmup=False) as client:
        width = client.post("/models/embedding/infer", json={"text": "a cat"}).json()["predictions"]["embedding"]
        write_model(store, "half", elementwise("mul(@0,0.5)", f"(?,{len(width)})f32"))
        for name, text in (("sum", SUM), ("spans", SPANS), ("vector", VECTOR), ("choice", CHOICE), ("nested", NESTED)):
            write_pipeline(store, name, text)
        for _ in range(6):
            client.plane.watcher.look()
            client.plane.store._loaders.wait()
        yield client


def post(client: Client, model: str, body: Any) -> Any:
    response = client.post(f"/models/{model}/infer", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def png(values: list[list[int]]) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.array(values, np.uint8)).save(out, "PNG")
    return out.getvalue()


def upload(client: Client, model: str, picture: bytes) -> Any:
    response = client.post(f"/models/{model}/infer", content=picture, headers={"content-type": "image/png"})
    assert response.status_code == 200, response.text
    return response.json()["predictions"]


def test_tensors_go_from_step_to_step_and_constants_to_every_row(client: Client) -> None:
    answer = post(client, "sum", {"inputs": {"x": [[1, 2], [3, 4], [5, 6]]}})
    assert answer["outputs"] == {
        "sum.out0": {"shape": [3, 2], "dtype": "float32", "data": [102, 204, 106, 208, 110, 212]}
    }
    assert "predictions" not in answer


def test_every_output_of_a_chain_can_be_asked_for(client: Client) -> None:
    answer = post(client, "sum", {"inputs": [[1, 2]], "outputs": ["twice.out0", "sum.out0"]})
    assert answer["outputs"]["twice.out0"]["data"] == [2, 4]
    assert answer["outputs"]["sum.out0"]["data"] == [102, 204]
    refused = client.post("/models/sum/infer", json={"inputs": [[1, 2]], "outputs": ["out0"]})
    assert refused.status_code == 422 and "expected 'twice.out0', 'sum.out0'" in refused.text.replace("one of ", "")


def test_a_wrong_tensor_names_the_step(client: Client) -> None:
    refused = client.post("/models/sum/infer", json={"inputs": [[1, 2, 3]]})
    assert refused.status_code == 422


def test_spans_of_a_text_go_to_the_next_model(client: Client) -> None:
    texts = ["we flew from paris to vienna", "nothing here"]
    found = post(client, "spans", {"text": texts})["predictions"]
    alone = post(client, "token-classification", {"text": texts})["predictions"]
    for row, spans in zip(found, alone, strict=True):
        for entity, span in zip(row["entities"], spans, strict=True):
            vector = entity.pop("vector")
            assert entity == span
            if span["label"] != "LOC":
                assert vector is None
            else:
                expected = post(client, "embedding", {"text": span["text"]})["predictions"]
                assert vector["tokens"] == expected["tokens"]
                np.testing.assert_allclose(vector["embedding"], expected["embedding"], atol=1e-5)


def test_a_vector_of_predictions_is_a_tensor(client: Client) -> None:
    answer = post(client, "vector", {"text": ["a cat", "a big dog"]})
    vectors = [row["vector"]["embedding"] for row in answer["predictions"]]
    halves = np.array(answer["outputs"]["score.out0"]["data"]).reshape(answer["outputs"]["score.out0"]["shape"])
    np.testing.assert_allclose(halves, np.array(vectors) / 2, rtol=1e-5)


def test_a_condition_on_the_best_class_of_the_picture(client: Client) -> None:
    (yes, no) = (upload(client, "choice", png(values)) for values in ([[255, 0], [0, 0]], [[0, 255], [0, 0]]))
    assert yes["kind"][0]["label"] == "left" and yes["again"] == yes["kind"]
    assert no["kind"][0]["label"] == "right" and no["again"] is None


def test_a_pipeline_is_a_step_of_another(client: Client) -> None:
    picture = png([[200, 10, 30, 40, 50, 60, 70, 80]] * 4)
    (found,) = upload(client, "nested", picture)["find"]
    x0, y0, x1, y1 = (round(side) for side in found["box"])
    part = io.BytesIO()
    Image.open(io.BytesIO(picture)).crop((x0, y0, x1, y1)).save(part, "PNG")
    assert found["inner"] == upload(client, "choice", part.getvalue())


def test_inputs_that_are_missing_are_named(client: Client) -> None:
    refused = client.post("/models/sum/infer", json={"inputs": {"y": [[1, 2]]}})
    assert refused.status_code == 422 and "'x'" in refused.text
    refused = client.post("/models/spans/infer", json={"inputs": [[1, 2]]})
    assert refused.status_code == 422 and "expected a text" in refused.text
