"""Tests of the routes of TorchServe, KServe V1 and TensorFlow Serving, with requests of their documentation."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from tests.app.client import Client, serving
from tests.app.pictures import png
from tests.app.sample_models import elementwise, write_model


def test_a_server_that_is_not_ready_is_unhealthy_in_torchserve_s_form(zoo: Client, tmp_path: Path) -> None:
    assert (zoo.get("/ping").status_code, zoo.get("/ping").json()) == (200, {"status": "Healthy"})
    with serving(tmp_path) as empty:
        assert (empty.get("/ping").status_code, empty.get("/ping").json()) == (500, {"status": "Unhealthy"})


def test_a_picture_is_answered_by_probabilities_of_labels(zoo: Client) -> None:
    answer = zoo.post("/predictions/shades", content=png(), headers={"content-type": "image/png"})
    usual = zoo.post("/models/shades/infer", content=png(), headers={"content-type": "image/png"}).json()
    assert answer.json() == {each["label"]: each["probability"] for each in usual["predictions"]}
    versioned = zoo.post("/predictions/shades/1.0", content=png(), headers={"content-type": "image/png"})
    assert versioned.json() == answer.json()


def test_curl_t_sends_put(zoo: Client) -> None:
    for path in ("/predictions/shades", "/predictions/shades/1.0"):  # curl .../predictions/shades -T kitten.png
        assert set(zoo.request("PUT", path, content=png()).json()) == {"left", "right", "below"}


def test_a_file_of_a_form_is_taken_as_torchserve_takes_it(zoo: Client) -> None:
    form = zoo.post("/predictions/shades", files={"data": ("kitten.png", png(), "image/png")})
    assert set(form.json()) == {"left", "right", "below"}


def test_boxes_have_torchserve_s_form(zoo: Client) -> None:
    (box,) = zoo.post("/predictions/boxes", content=png(), headers={"content-type": "image/png"}).json()
    assert set(box) == {"thing", "score"}
    assert len(box["thing"]) == 4


def test_a_model_without_a_task_answers_its_output_alone(zoo: Client) -> None:
    assert zoo.post("/predictions/one", json={"inputs": [[1, 2, 3]]}).json() == [[2, 3, 4]]


def test_rows_are_answered_by_rows(zoo: Client) -> None:
    assert zoo.post("/v1/models/one:predict", json={"instances": [[1, 2, 3], [4, 5, 6]]}).json() == {
        "predictions": [[2, 3, 4], [5, 6, 7]]
    }
    answer = zoo.post("/v1/models/one/versions/1:predict", json={"signature_name": "x", "instances": [[1, 2, 3]]})
    assert answer.json() == {"predictions": [[2, 3, 4]]}


def test_rows_of_several_inputs_are_objects(zoo: Client) -> None:
    rows = [{"in0": [1, 2], "in1": [3, 4]}, {"in0": [5, 6], "in1": [7, 8]}]
    assert zoo.post("/v1/models/add:predict", json={"instances": rows}).json() == {"predictions": [[4, 6], [12, 14]]}


def test_half_plus_two_of_tensorflow_serving_s_documentation(tmp_path: Path) -> None:
    write_model(tmp_path, "half_plus_two", elementwise("add(mul(@0,0.5),2)", "(?)f32"))
    form = {"content-type": "application/x-www-form-urlencoded"}  # of curl -d
    with serving(tmp_path) as client:
        path = "/v1/models/half_plus_two:predict"
        rows = client.post(path, content=b'{"instances": [1.0, 2.0, 5.0]}', headers=form)
        assert rows.json() == {"predictions": [2.5, 3.0, 4.5]}
        columns = client.post(
            path, content=b'{"signature_name": "serving_default", "inputs": [1.0, 2.0]}', headers=form
        )
        assert columns.json() == {"outputs": [2.5, 3.0]}
        status = {"error_code": "OK", "error_message": ""}
        state = {"model_version_status": [{"version": "1", "state": "AVAILABLE", "status": status}]}
        assert client.get("/v1/models/half_plus_two/versions/1").json() == state
        for unknown in ("2", "stable"):
            assert client.get(f"/v1/models/half_plus_two/versions/{unknown}").status_code == 404


def test_columns_are_answered_by_columns(zoo: Client) -> None:
    columns = {"in0": [[1, 2]], "in1": [[3, 4]]}
    assert zoo.post("/v1/models/add:predict", json={"inputs": columns}).json() == {"outputs": [[4, 6]]}
    assert zoo.post("/v1/models/one:predict", json={"inputs": [[1, 2, 3]]}).json() == {"outputs": [[2, 3, 4]]}


def test_pictures_come_as_base64(zoo: Client) -> None:
    picture = {"b64": base64.b64encode(png()).decode()}
    found = zoo.post("/v1/models/shades:predict", json={"instances": [picture, picture]}).json()["predictions"]
    usual = zoo.post("/models/shades/infer", content=png(), headers={"content-type": "image/png"}).json()
    assert found == [usual["predictions"]] * 2


def test_the_state_of_a_model_has_the_keys_of_all_three(zoo: Client) -> None:
    answer = zoo.get("/v1/models/one").json()
    assert (answer["name"], answer["ready"], answer["id"], answer["object"]) == ("one", True, "one", "model")
    (version,) = answer["model_version_status"]
    assert (version["version"], version["state"], version["status"]["error_code"]) == ("1", "AVAILABLE", "OK")


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({}, 400, 'expected {"instances"'),
        ({"instances": [], "inputs": []}, 400, 'expected {"instances"'),
        ({"instances": []}, 400, "instances: found []"),
        ({"instances": 5}, 400, "instances: found 5"),
        ({"instances": [{"in0": [1]}, {"x": [1]}]}, 400, "instances[1]"),
        ({"instances": [[1, 2, 3]], "model": "one"}, 400, "unknown key 'model'"),
        ({"instances": [[1, 2]]}, 422, "in0"),
    ],
)
def test_a_body_of_another_form_is_refused(zoo: Client, body: object, status: int, message: str) -> None:
    response = zoo.post("/v1/models/one:predict", json=body)
    assert response.status_code == status, response.text
    assert message in response.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/predictions/nothing", "/predictions/one/9", "/v1/models/nothing:predict"])
def test_a_model_or_version_that_is_not_there_is_not_found(zoo: Client, path: str) -> None:
    assert zoo.post(path, json={"instances": [[1, 2, 3]]}).status_code == 404
