"""Tests of GET /graph in every format, and of measured times."""

from __future__ import annotations

import xml.etree.ElementTree
from pathlib import Path

import pytest

from tests.app.client import Client, serving
from tests.app.sample_models import through, write_model


def test_json_is_the_engines_description_under_the_models_name(zoo: Client) -> None:
    graph = zoo.get("/graph?model=shades").json()
    assert (graph["name"], graph["version"], graph["totals"]["parameters"]) == ("shades", 1, 15)
    assert [operator["type"] for operator in graph["operators"]] == [
        "pnnx.Input", "torch.flatten", "nn.Linear", "pnnx.Output"
    ]  # fmt: skip
    assert not any("time_us" in operator for operator in graph["operators"])
    assert zoo.get("/models/shades/graph").json() == graph


def test_a_profile_has_the_time_of_every_operator(zoo: Client) -> None:
    operators = zoo.get("/graph?model=shades&profile=true").json()["operators"]
    assert all(operator["time_us"] >= 0 for operator in operators if operator["type"] == "nn.Linear")
    assert sum("time_us" in operator for operator in operators) >= 2


@pytest.mark.parametrize(
    ("format", "media_type", "beginning"),
    [("svg", "image/svg+xml", "<svg"), ("dot", "text/vnd.graphviz", "digraph"), ("mermaid", "text/plain", ""),
     ("text", "text/plain", ""), ("param", "text/plain", "7767517\n")],
)  # fmt: skip
def test_every_format_has_its_type(zoo: Client, format: str, media_type: str, beginning: str) -> None:
    response = zoo.get(f"/graph?model=shades&format={format}")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith(media_type)
    assert beginning in response.text and response.text


def test_the_drawing_is_well_formed_and_shows_the_operators(zoo: Client) -> None:
    text = zoo.get("/models/shades/graph?format=svg&profile=true").text
    assert xml.etree.ElementTree.fromstring(text).tag.endswith("svg")
    assert "Linear" in text


def test_param_is_the_models_own_file(zoo: Client, zoo_store: Path) -> None:
    assert zoo.get("/graph?model=add&format=param").text == (zoo_store / "add/1/model.pnnx.param").read_text()


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/graph?model=nope", 404, "no model 'nope'"),
        ("/graph?model=one&version=9", 404, "model 'one' has no version 9"),
        ("/graph", 404, "the request names no model"),
        ("/graph?model=open&profile=true", 400, "profile: the size of the model's input is dynamic"),
        ("/graph?model=one&format=param&profile=true", 400, "profile: found format 'param', which has no times"),
    ],
)
def test_what_cannot_be_shown_is_told(zoo: Client, path: str, status: int, message: str) -> None:
    response = zoo.get(path)
    assert response.status_code == status
    assert response.json()["error"]["message"].startswith(message)


def test_a_model_that_failed_has_no_graph_but_a_reason(tmp_path: Path) -> None:
    write_model(tmp_path, "bad", through("no.Such", "(1,2)f32"))
    with serving(tmp_path) as client:
        response = client.get("/graph")
    assert response.status_code == 503 and "no.Such" in response.text
