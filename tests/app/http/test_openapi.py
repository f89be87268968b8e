"""Tests that the OpenAPI document is complete and its examples work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.http.routes.infer import METHODS
from app.http.schemas import infer_body
from app.http.server.inference import find
from app.tasks.registry import TASKS
from tests.app.client import Client, serving
from tests.app.sample_models import write_classifier


def examples(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, operations in document["paths"].items():
        for operation in operations.values():
            names = {row["name"]: row.get("example") for row in operation.get("parameters", [])}
            target = path.replace("{name}", names.get("name") or "")
            for content in operation.get("requestBody", {}).get("content", {}).values():
                for title, example in content.get("examples", {}).items():
                    yield title, target, example


def test_every_example_gets_the_status_it_says(zoo: Client) -> None:
    found = list(examples(zoo.get("/openapi.json").json()))
    answered = {
        (title, target): zoo.post(target, json=example["value"]).status_code for title, target, example in found
    }
    assert answered == {(title, target): example["x-status"] for title, target, example in found}
    assert {200, 400, 404, 422} <= set(answered.values()) and len(found) > 20


def test_every_parameter_example_names_a_model_there_is(zoo: Client) -> None:
    paths = zoo.get("/openapi.json").json()["paths"]
    rows = [row for path in paths.values() for operation in path.values() for row in operation.get("parameters", [])]
    names = {row["example"] for row in rows if row["in"] == "path" and row["name"] == "name"}
    assert all(zoo.get(f"/models/{name}").status_code == 200 for name in names) and names


def test_every_status_of_an_inference_is_documented(zoo: Client) -> None:
    responses = zoo.get("/openapi.json").json()["paths"]["/infer"]["post"]["responses"]
    assert set(responses) == {*map(str, (200, 400, 404, 406, 413, 415, 422, 429, 500, 503, 504))}


def test_every_error_is_documented_in_its_one_shape(zoo: Client) -> None:
    paths = zoo.get("/openapi.json").json()["paths"]
    of_protocol = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
    for path, operations in paths.items():
        expected = of_protocol if path.startswith("/v2") else {"$ref": "#/components/schemas/ErrorBody"}
        for operation in operations.values():
            for status, response in operation["responses"].items():
                if status >= "4":
                    schema = response["content"]["application/json"]["schema"]
                    assert schema == expected, (status, operation["summary"])


def test_the_answer_of_every_task_is_shown_and_has_its_shape(zoo: Client) -> None:
    content = zoo.get("/openapi.json").json()["paths"]["/infer"]["post"]["responses"]["200"]["content"]
    assert set(content) == {"application/json", "application/x-npz", "application/x-npy", "image/png"}
    shown = content["application/json"]["examples"]
    assert set(shown) == set(TASKS)
    for example in shown.values():
        infer_body().model_validate(example["value"])


def test_every_body_the_server_takes_is_documented(zoo: Client) -> None:
    body = zoo.get("/openapi.json").json()["paths"]["/infer"]["post"]["requestBody"]
    assert set(body["content"]) == {
        "application/json", "multipart/form-data", "image/*", "application/x-npy", "application/x-npz"
    }  # fmt: skip


def test_there_is_a_document_before_there_are_models(tmp_path: Path) -> None:
    with serving(tmp_path) as client:
        assert [example["x-status"] for _, _, example in examples(client.get("/openapi.json").json())] == [404]
        assert client.get("/docs").status_code == 200


def test_examples_of_a_store_of_one_need_no_name(tmp_path: Path) -> None:
    write_classifier(tmp_path)
    with serving(tmp_path) as client:
        for title, target, example in examples(client.get("/openapi.json").json()):
            assert client.post(target, json=example["value"]).status_code == example["x-status"], title


def test_the_document_is_written_once_for_all_who_ask(zoo: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    first = zoo.get("/openapi.json")
    monkeypatch.setattr("app.http.openapi.dump_json", None)
    monkeypatch.setattr("app.http.openapi.get_openapi", None)
    again = zoo.get("/openapi.json")
    assert (again.status_code, again.content) == (200, first.content)
    assert again.headers["content-type"] == "application/json"


def test_the_described_routes_of_inference_are_those_a_connection_answers_itself(zoo: Client) -> None:
    paths = zoo.get("/openapi.json").json()["paths"]
    described = {path for path in paths if path.endswith("/infer")}
    assert len(described) == 4
    for path in described:
        for method in METHODS if not path.startswith("/v2") else ("POST",):
            found = find(method, path.format(name="digits", version="1"))
            assert found is not None and found.route == path


def test_put_is_documented_as_it_is_taken(zoo: Client) -> None:
    document = zoo.get("/openapi.json").json()
    for path in ("/infer", "/models/{name}/infer"):
        allowed = zoo.request("OPTIONS", path.format(name="shades")).headers["allow"].split(", ")
        assert {method.upper() for method in document["paths"][path]} == set(allowed) == {"POST", "PUT"}


def test_what_the_protocol_answers_has_the_shape_that_is_told(zoo: Client) -> None:
    for path, operations in zoo.get("/openapi.json").json()["paths"].items():
        if not path.startswith("/v2") or "get" not in operations or "{region}" in path:
            continue
        schema = operations["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        found = zoo.get(path.format(name="one", version="1")).json()
        assert isinstance(found, {"object": dict, "array": list}[schema["type"]])
        assert set(schema.get("required", ())) <= set(found), path
