"""Tests of POST /infer with all accepted bodies."""

from __future__ import annotations

import base64
import io
from typing import Any

import httpx
import numpy as np
import pytest

from app.codec import json_tensors
from tests.app.client import Client
from tests.app.pictures import encoded, gradient, npy, npz, png

ONE = np.float32([[1, 2, 3]])


def outputs(response: httpx.Response) -> dict[str, np.ndarray]:
    assert response.status_code == 200, response.text
    return {
        name: np.array(tensor["data"], tensor["dtype"]).reshape(tensor["shape"])
        for name, tensor in response.json()["outputs"].items()
    }


def only(response: httpx.Response) -> np.ndarray:
    return outputs(response)["out0"]


def send(client: Client, path: str, body: bytes, content_type: str | None, **headers: str) -> httpx.Response:
    typed = {} if content_type is None else {"content-type": content_type}
    return client.post(path, content=body, headers={**typed, **headers})


@pytest.mark.parametrize(
    "inputs",
    [
        [[1, 2, 3]],
        {"in0": [[1, 2, 3]]},
        {"in0": {"shape": [1, 3], "dtype": "float32", "data": [1, 2, 3]}},
        {"shape": [1, 3], "data": [[1, 2, 3]]},
        {"in0": {"shape": [1, 3], "dtype": "float32", "b64": base64.b64encode(ONE.tobytes()).decode()}},
    ],
)
def test_every_form_of_a_json_tensor_gives_the_same_answer(zoo: Client, inputs: object) -> None:
    np.testing.assert_array_equal(only(zoo.infer("one", inputs)), ONE + 1, strict=True)


def test_an_answer_says_what_answered_and_how_long_it_took(zoo: Client) -> None:
    answer = zoo.infer("one", [[1, 2, 3]]).json()
    assert (answer["model"], answer["version"]) == ("one", 1)
    parts = ("queue", "decode", "preprocess", "infer", "postprocess", "total")
    assert list(answer["timing"]) == [f"{part}_ms" for part in parts]
    assert answer["timing"]["total_ms"] >= answer["timing"]["infer_ms"] > 0


@pytest.mark.parametrize(
    ("path", "body"),
    [("/models/one/infer", {}), ("/infer?model=one", {}), ("/infer", {"model": "one"}),
     ("/infer?model=one&version=1", {"model": "one", "version": "1"}), ("/models/one/infer", {"version": 1})],
)  # fmt: skip
def test_the_model_may_be_named_in_the_path_the_query_or_the_body(zoo: Client, path: str, body: dict[str, Any]) -> None:
    assert only(zoo.post(path, json={"inputs": [[0, 0, 0]], **body})).tolist() == [[1, 1, 1]]


def test_npy_and_npz_bodies_are_tensors(zoo: Client) -> None:
    for body, content_type in ((npy(ONE), "application/x-npy"), (npz(ONE), "application/x-npz")):
        np.testing.assert_array_equal(only(send(zoo, "/models/one/infer", body, content_type)), ONE + 1)


def test_several_inputs_come_by_name(zoo: Client) -> None:
    x, y = np.float32([[1, 2]]), np.float32([[10, 20]])
    body = {"in0": x.tolist(), "in1": y.tolist()}
    np.testing.assert_array_equal(only(zoo.infer("add", body)), x + y)
    np.testing.assert_array_equal(only(send(zoo, "/models/add/infer", npz(in0=x, in1=y), "application/x-npz")), x + y)
    files = [("in0", ("x.npy", npy(x))), ("in1", ("y.npy", npy(y)))]
    np.testing.assert_array_equal(only(zoo.post("/models/add/infer", files=files)), x + y)


@pytest.mark.parametrize(
    ("model", "inputs", "expected"),
    [("ints", [[2**62, -1, 0]], np.int64([[2**62 + 1, 0, 1]])), ("bytes", [[0, 1, 2]], np.uint8([[1, 2, 3]])),
     ("flags", [[True, False]], np.array([[True, False]]))],
)  # fmt: skip
def test_every_dtype_goes_through(zoo: Client, model: str, inputs: object, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(only(zoo.infer(model, inputs)), expected, strict=True)


def test_complex_tensors_come_as_npy_and_go_as_pairs(zoo: Client) -> None:
    response = send(zoo, "/models/waves/infer", npy(np.complex64([[1 + 2j, 3]])), "application/x-npy")
    assert response.json()["outputs"]["out0"] == {
        "shape": [1, 2], "dtype": "complex64", "data": [[1.0, 2.0], [3.0, 0.0]]
    }  # fmt: skip


def test_infinite_outputs_are_strings_that_can_be_sent_back(zoo: Client) -> None:
    answer = zoo.infer("inverse", [[0, -0.0, 2]]).json()["outputs"]["out0"]
    assert answer["data"] == ["Infinity", "-Infinity", 0.5]
    assert only(zoo.infer("inverse", answer)).tolist() == [[0, 0, 2]]


def test_a_batch_is_answered_as_its_items_one_by_one(zoo: Client) -> None:
    x = np.random.default_rng(0).random((5, 1, 2, 2), np.float32)
    batch = zoo.infer("shades", x.tolist()).json()
    single = [zoo.infer("shades", item[None].tolist()).json() for item in x]
    assert batch["predictions"] == [answer["predictions"] for answer in single]
    assert batch["outputs"]["out0"]["shape"] == [5, 3]


def test_one_picture_has_a_flat_list_of_predictions(zoo: Client) -> None:
    picture = gradient(2, 2, "L")
    picture.putdata([0, 255, 128, 7])
    answer = send(zoo, "/models/shades/infer", encoded(picture), "image/png").json()
    assert [row["label"] for row in answer["predictions"]] == ["right", "below", "left"]
    assert set(answer) == {"model", "version", "predictions", "timing"}
    assert answer["timing"]["decode_ms"] > 0 and answer["timing"]["preprocess_ms"] > 0


def test_several_pictures_have_a_list_each_in_the_order_sent(zoo: Client) -> None:
    files = []
    for name, pixels in (("a.png", [255, 0, 0, 0]), ("b.png", [0, 255, 0, 0]), ("c.png", [0, 0, 255, 0])):
        picture = gradient(2, 2, "L")
        picture.putdata(pixels)
        files.append(("file", (name, encoded(picture))))
    answer = zoo.post("/models/shades/infer", files=files).json()
    assert [rows[0]["label"] for rows in answer["predictions"]] == ["left", "right", "below"]


@pytest.mark.parametrize(
    "body",
    [{"inputs": {"image": "@"}}, {"image": "@"}, {"inputs": {"in0": {"image": "@"}}}, {"inputs": [{"image": "@"}]}],
)
def test_a_picture_in_json_is_the_picture_itself(zoo: Client, body: dict[str, Any]) -> None:
    picture = png(6, 4)
    text = str(body).replace("'", '"').replace("@", base64.b64encode(picture).decode())
    expected = only(send(zoo, "/models/canvas/infer?outputs=true", picture, "image/png"))
    np.testing.assert_array_equal(
        only(send(zoo, "/models/canvas/infer?outputs=true", text.encode(), "application/json")), expected
    )
    np.testing.assert_array_equal(expected[0].transpose(1, 2, 0), np.float32(np.asarray(gradient(6, 4)) / 255))


def test_a_picture_and_its_file_in_a_form_give_the_same(zoo: Client) -> None:
    expected = only(send(zoo, "/models/canvas/infer?outputs=true", png(9, 9), "image/png"))
    found = zoo.post("/models/canvas/infer?outputs=true", files={"file": ("x.png", png(9, 9))})
    np.testing.assert_array_equal(only(found), expected)


def test_a_dynamic_size_is_the_pictures_own(zoo: Client) -> None:
    assert only(send(zoo, "/models/open/infer?outputs=true", png(5, 7), "image/png")).shape == (1, 3, 7, 5)


def test_boxes_are_in_pixels_of_the_picture_sent(zoo: Client) -> None:
    answer = send(zoo, "/models/boxes/infer", png(80, 80), "image/png").json()
    assert answer["predictions"] == [{"label": "thing", "score": 0.9, "index": 1, "box": [20, 40, 40, 80]}]


def test_raw_outputs_of_a_picture_come_when_asked_for(zoo: Client) -> None:
    path = "/models/boxes/infer"
    assert "outputs" not in send(zoo, path, png(), "image/png").json()
    assert set(outputs(send(zoo, f"{path}?outputs=true", png(), "image/png"))) == {"out0", "out1"}
    assert set(outputs(send(zoo, f"{path}?outputs=out1", png(), "image/png"))) == {"out1"}
    assert set(outputs(zoo.post(path, json={"image": base64.b64encode(png()).decode(), "outputs": ["out0"]}))) == {
        "out0"
    }


def test_a_model_without_predictions_answers_a_picture_with_its_outputs(zoo: Client) -> None:
    assert set(outputs(send(zoo, "/models/canvas/infer", png(), "image/png"))) == {"out0"}
    assert set(outputs(send(zoo, "/models/canvas/infer?outputs=true", png(), "image/png"))) == {"out0"}


def test_a_sound_is_no_picture(zoo: Client) -> None:
    answer = send(zoo, "/models/canvas/infer", b"RIFF\x24\0\0\0WAVEfmt " + bytes(24), None)
    assert answer.status_code == 422
    message = "the model takes no sounds: found a sound, expected a picture or tensors for 'in0'"
    assert answer.json()["error"]["message"] == message


def test_raw_outputs_of_a_tensor_can_be_left_out(zoo: Client) -> None:
    zeros = np.zeros((1, 3, 4, 8)).tolist()
    assert set(zoo.infer("boxes", zeros).json()["outputs"]) == {"out0", "out1"}
    assert "outputs" not in zoo.post("/models/boxes/infer?outputs=false", json={"inputs": zeros}).json()


@pytest.mark.parametrize(
    ("query", "body"),
    [("?top_k=1", {}), ("", {"parameters": {"top_k": 1}}), ("?top_k=1", {"parameters": {"top_k": 2}})],
)
def test_a_tasks_parameters_come_in_the_query_or_the_body(zoo: Client, query: str, body: dict[str, Any]) -> None:
    response = zoo.post(f"/models/shades/infer{query}", json={"inputs": np.eye(2).reshape(1, 1, 2, 2).tolist(), **body})
    assert [row["label"] for row in response.json()["predictions"]] == ["left"]


def test_npz_answers_carry_every_output_as_it_is(zoo: Client) -> None:
    headers = {"accept": "application/x-npz"}
    response = zoo.post("/models/inverse/infer", json={"inputs": [[0, 1, 2]]}, headers=headers)
    assert response.headers["content-type"] == "application/x-npz"
    np.testing.assert_equal(dict(np.load(io.BytesIO(response.content))), {"out0": np.float32([[np.inf, 1, 0.5]])})
    response = send(zoo, "/models/boxes/infer", png(), "image/png", **headers)
    assert set(np.load(io.BytesIO(response.content))) == {"out0", "out1"}


def test_npy_answers_are_the_one_output_there_is_or_the_one_that_is_named(zoo: Client) -> None:
    headers = {"accept": "application/x-npy"}
    response = zoo.post("/models/inverse/infer", json={"inputs": [[0, 1, 2]]}, headers=headers)
    assert response.headers["content-type"] == "application/x-npy"
    found = np.load(io.BytesIO(response.content))
    np.testing.assert_array_equal(found, np.float32([[np.inf, 1, 0.5]]), strict=True)
    assert send(zoo, "/models/boxes/infer", png(), "image/png", **headers).status_code == 406
    one = send(zoo, "/models/boxes/infer?outputs=out1", png(), "image/png", **headers)
    assert np.load(io.BytesIO(one.content)).shape == (1, 3, 4)
    both = send(zoo, "/models/boxes/infer", png(), "image/png", accept="application/x-npy, application/json;q=0.5")
    assert both.headers["content-type"] == "application/json"


def test_put_does_what_post_does(zoo: Client) -> None:
    assert zoo.request("PUT", "/models/canvas/infer", content=png(6, 4)).status_code == 200
    assert zoo.request("PUT", "/infer", json={"model": "one", "inputs": [[1, 2, 3]]}).status_code == 200


def test_a_body_of_the_other_protocol_is_told_where_to_go(zoo: Client) -> None:
    tensor = {"name": "in0", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}
    response = zoo.post("/models/one/infer", json={"id": "7", "inputs": [tensor]})
    assert response.status_code == 400 and "/v2/models/NAME/infer" in response.json()["error"]["message"]


@pytest.mark.parametrize("content_type", [None, "application/octet-stream", "application/x-www-form-urlencoded"])
@pytest.mark.parametrize(
    "body", [png(6, 4), npy(np.zeros((1, 3, 4, 6), np.float32)), npz(np.zeros((1, 3, 4, 6), np.float32)),
             b' {"inputs": {"shape": [0, 3, 4, 6], "data": []}}']
)  # fmt: skip
def test_a_body_without_a_type_is_known_by_its_first_bytes(zoo: Client, body: bytes, content_type: str | None) -> None:
    assert send(zoo, "/models/canvas/infer", body, content_type).status_code == 200


def test_a_large_json_body_is_answered_like_a_small_one(zoo: Client) -> None:
    x = np.random.default_rng(0).random((10_000, 3))
    response = zoo.post("/infer", json={"model": "one", "inputs": x.tolist()})
    np.testing.assert_array_equal(only(response), np.float32(x) + 1)


def test_an_empty_batch_is_answered_with_an_empty_batch(zoo: Client) -> None:
    assert only(zoo.infer("one", {"shape": [0, 3], "data": []})).shape == (0, 3)


@pytest.mark.parametrize("path", ["/models/one/infer", "/v2/models/one/infer"])
def test_a_large_tensor_as_text_earns_one_line_of_advice(
    zoo: Client, path: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_tensors, "_advised", {})
    x = np.arange(21_000, dtype=np.float32).reshape(-1, 3)
    document: Any = {"inputs": x.tolist()}
    if path.startswith("/v2"):
        document = {"inputs": [{"name": "in0", "shape": x.shape, "datatype": "FP32", "data": x.tolist()}]}
    with caplog.at_level("INFO", "app.codec.json_tensors"):
        for _ in range(2):
            assert zoo.post(path, json=document).status_code == 200
    told = [record.args for record in caplog.records if record.name == "app.codec.json_tensors"]
    assert told == [("one", 84)]
