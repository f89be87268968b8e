"""Tests of string inputs and outputs: in JSON, as BYTES, in files, and cached."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.app.client import Client, serving

STRING = 8


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")
    from tests.engine.onnx_files.models import model, node, save, value

    folder = tmp_path_factory.mktemp("texts") / "greet"
    (folder / "1").mkdir(parents=True)
    nodes = [node("StringConcat", ["who", "mark"], ["said"]), node("Add", ["a", "a"], ["b"])]
    inputs = [value("who", ["n"], STRING), value("a", ["n"])]
    marks = {"mark": np.array(["!"], object)}
    save(folder / "1", model(nodes, inputs, [value("said", ["n"], STRING), value("b", ["n"])], marks))
    (folder / "config.toml").write_text("[response_cache]\nmax_bytes = 100_000\n")
    with serving(folder.parent, threads=1) as client:
        yield client


def said(client: Client, who: Any, **more: Any) -> Any:
    return client.infer("greet", {"who": who, "a": [1.0] * 2}, **more)


def test_json_says_texts_as_strings(texts: Client) -> None:
    answer = said(texts, ["a", "ÿ \U0001f600"]).json()["outputs"]
    assert answer["said"] == {"shape": [2], "dtype": "string", "data": ["a!", "ÿ \U0001f600!"]}
    spelt = {"shape": [2], "dtype": "string", "data": ["", "\x00"]}
    assert said(texts, spelt).json()["outputs"]["said"]["data"] == ["!", "\x00!"]


def test_texts_are_called_strings_in_descriptions_and_messages(texts: Client) -> None:
    for port in (texts.get("/models/greet").json()["inputs"][0], texts.get("/models/greet/graph").json()["inputs"][0]):
        assert port["dtype"] == "string"
    body = {"inputs": {"who": {"shape": [2], "dtype": "float32", "data": [1, 2]}, "a": [1.0, 2.0]}}
    response = texts.post("/models/greet/infer", json=body)
    assert response.status_code == 422
    assert "object" not in response.text and "string" in response.text
    picture = texts.post("/models/greet/infer", json={"inputs": {"who": {"image": "AAAA"}, "a": [1.0, 2.0]}})
    assert "[n] string" in picture.text


def test_answers_that_are_kept_are_kept_by_what_texts_say(texts: Client) -> None:
    """Compare texts by content, not by identity or by their concatenation."""
    for who in (["ab", "c"], ["a", "bc"], ["ab", "c"]):
        assert said(texts, list(who)).json()["outputs"]["said"]["data"] == [f"{each}!" for each in who]


@pytest.mark.parametrize(
    "who",
    [
        [1, 2],
        ["a", None],
        [["a"], "b"],
        [["a"], ["b", "c"]],
        "a",
        {"b64": "AAAA"},
        [[[]]],
        {"shape": [2], "b64": "AAAAAAAAAAAAAAAAAAAAAA=="},
        {"shape": [3], "data": ["a", "b"]},
    ],
)
def test_what_is_no_list_of_texts_is_refused_in_words(texts: Client, who: Any) -> None:
    answer = said(texts, who)
    assert answer.status_code in (400, 422), answer.text
    assert len(answer.json()["error"]["message"]) > 10


def row(name: str, datatype: str, data: Any) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": [2], "data": data}


def test_the_protocol_calls_them_bytes(texts: Client) -> None:
    ports = texts.get("/v2/models/greet").json()
    assert [each["datatype"] for each in (*ports["inputs"], *ports["outputs"])] == ["BYTES", "FP32", "BYTES", "FP32"]
    body = {"inputs": [row("who", "BYTES", ["a", "ß"]), row("a", "FP32", [1, 2])]}
    answer = texts.post("/v2/models/greet/infer", json=body).json()
    assert answer["outputs"][0] == {"name": "said", "datatype": "BYTES", "shape": [2], "data": ["a!", "ß!"]}


def test_what_a_file_calls_its_sizes_stands_in_the_configuration(texts: Client) -> None:
    """Check the names of dynamic sizes in the configuration, where the protocol only has -1."""
    config = texts.get("/v2/models/greet/config").json()
    assert config["input"][0]["dims"] in ([-1], [])
    assert config["parameters"]["shape.who"] == {"string_value": "[n]"}


def binary(texts: Client, raw: bytes) -> Any:
    sent = {"name": "who", "datatype": "BYTES", "shape": [2], "parameters": {"binary_data_size": len(raw)}}
    wanted = [{"name": "said", "parameters": {"binary_data": True}}]
    head = json.dumps({"inputs": [sent, row("a", "FP32", [1, 2])], "outputs": wanted}).encode()
    headers = {"inference-header-content-length": str(len(head))}
    return texts.post("/v2/models/greet/infer", content=head + raw, headers=headers)


def test_as_bytes_each_comes_after_its_length(texts: Client) -> None:
    answer = binary(texts, b"\x01\0\0\0a\x02\0\0\0\xc3\x9f")
    assert answer.content.endswith(b"\x02\0\0\0a!\x03\0\0\0\xc3\x9f!")
    for raw in (b"\x01\0\0\0a", b"\xff\xff\xff\xffa", b"\x01\0\0\0a\x01\0\0\0\xff"):
        assert binary(texts, raw).status_code in (400, 422)


def test_a_file_has_them_without_a_pickle(texts: Client) -> None:
    body = {"inputs": {"who": ["a", "ÿ"], "a": [1, 2]}}
    answer = texts.post("/models/greet/infer", json=body, headers={"accept": "application/x-npz"})
    with np.load(io.BytesIO(answer.content), allow_pickle=False) as arrays:
        assert arrays["said"].tolist() == ["a!", "ÿ!"]
