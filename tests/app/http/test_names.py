"""Tests that all routes use the file's names of inputs and outputs, with in0 and out0 as aliases."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.cli import main
from tests.app.client import Client, serving
from tests.app.pictures import npz
from tests.engine.onnx_files.models import model, node, save, value

IMAGE, MASK = np.float32([[1, 2]]), np.float32([[10, 20]])
# What the model makes of them.
LOGITS, BEST = IMAGE - MASK, IMAGE * MASK
EXPECTED = {"logits": LOGITS, "best": BEST}


def two(folder: Path) -> Path:
    shape = ["n", 2]
    nodes = [node("Sub", ["image", "mask"], ["logits"]), node("Mul", ["image", "mask"], ["best"])]
    return save(folder, model(nodes, [value("image", shape), value("mask", shape)],
                              [value("logits", shape), value("best", shape)]))  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    (folder / "two/1").mkdir(parents=True)
    two(folder / "two/1")
    return folder


@pytest.fixture(scope="module")
def client(store: Path) -> Iterator[Client]:
    with serving(store) as client:
        yield client


def tensors(response: Any) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    rows = response.json()["outputs"]
    named = rows.items() if isinstance(rows, dict) else ((row["name"], row) for row in rows)
    return {name: np.float32(row["data"]).reshape(row["shape"]) for name, row in named}


def v2(client: Client, inputs: list[str], outputs: list[str] | None = None) -> Any:
    rows = [{"name": name, "shape": [1, 2], "datatype": "FP32", "data": array.tolist()}
            for name, array in zip(inputs, (IMAGE, MASK), strict=True)]  # fmt: skip
    asked = {} if outputs is None else {"outputs": [{"name": name} for name in outputs]}
    return client.post("/v2/models/two/infer", json={"inputs": rows, **asked})


def test_every_description_has_the_files_names(client: Client) -> None:
    row, metadata = client.get("/models/two").json(), client.get("/v2/models/two").json()
    described = client.get("/models/two/graph").json()
    config = client.get("/v2/models/two/config").json()
    for found in (row, metadata, described):
        assert [port["name"] for port in found["inputs"]] == ["image", "mask"]
        assert [port["name"] for port in found["outputs"]] == ["logits", "best"]
    assert [port["name"] for port in config["input"] + config["output"]] == ["image", "mask", "logits", "best"]
    assert '"in0"' not in client.get("/openapi.json").text


@pytest.mark.parametrize("inputs", [["image", "mask"], ["in0", "in1"], ["image", "in1"]])
@pytest.mark.parametrize("outputs", [None, ["best"], ["out1"], ["out0", "best"]])
def test_requests_may_use_names_and_aliases(client: Client, inputs: list[str], outputs: list[str] | None) -> None:
    given = dict(zip(inputs, (IMAGE.tolist(), MASK.tolist()), strict=True))
    asked = {} if outputs is None else {"outputs": outputs}
    meant = dict(zip(("out0", "out1"), EXPECTED.values(), strict=True)) | EXPECTED
    expected = {name: meant[name] for name in outputs or EXPECTED}
    np.testing.assert_equal(tensors(client.post("/models/two/infer", json={"inputs": given, **asked})), expected)
    if outputs is not None:
        np.testing.assert_equal(tensors(v2(client, inputs, outputs)), expected)


def test_archives_have_the_files_names(client: Client) -> None:
    headers = {"content-type": "application/x-npz", "accept": "application/x-npz"}
    for names in (("image", "mask"), ("in0", "in1")):
        body = npz(**dict(zip(names, (IMAGE, MASK), strict=True)))
        answer = client.post("/models/two/infer", content=body, headers=headers)
        np.testing.assert_equal(dict(np.load(io.BytesIO(answer.content))), EXPECTED)


@pytest.mark.parametrize("inputs", [["image", "mask"], ["in0", "in1"], ["image", "in1"]])
def test_outputs_that_a_v2_request_does_not_name_have_their_own_names(client: Client, inputs: list[str]) -> None:
    assert [*tensors(v2(client, inputs))] == ["logits", "best"]


def test_a_v2_error_names_the_port_that_comes_twice(client: Client) -> None:
    twice = {"outputs": v2(client, ["image", "mask"], ["out0", "logits"]), "inputs": v2(client, ["image", "in0"])}
    assert all(response.status_code == 400 for response in twice.values())
    assert "output 'logits' is requested twice of model 'two'" in twice["outputs"].json()["error"]
    assert "input 'image' is given twice for model 'two'" in twice["inputs"].json()["error"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"inputs": {"image": [[1]], "mask": [[1]]}}, "input 'image': wrong shape: found [1, 1], expected [n, 2]"),
        ({"inputs": {"in0": [[1]], "in1": [[1]]}}, "input 'image': wrong shape: found [1, 1], expected [n, 2]"),
        ({"inputs": {"image": [[1, 2]]}}, "input 'mask' is missing"),
        ({"inputs": {"image": [[1, 2]], "in2": [[1, 2]]}}, "unknown input: found 'in2', expected 'image', 'mask'"),
        ({"inputs": {"image": [[1, 2]], "in0": [[1, 2]]}}, "input 'image' is given twice"),
        ({"inputs": {"image": [[1, 2]], "mask": [[1, 2]]}, "outputs": ["out2"]},
         "unknown output: found 'out2', expected one of 'logits', 'best'"),
        ({"inputs": {"image": [[1, 2]], "mask": [[1, 2]]}, "outputs": ["best", "out1"]},
         "output 'best': found twice, expected once"),
    ],
)  # fmt: skip
def test_errors_have_the_files_names(client: Client, body: dict[str, Any], message: str) -> None:
    response = client.post("/models/two/infer", json=body)
    assert response.status_code == 422 and message in response.json()["error"]["message"]


def test_a_config_may_use_names_and_aliases(tmp_path: Path) -> None:
    for name, output in (("named", "best"), ("numbered", "out1"), ("wrong", "out2")):
        (tmp_path / name / "1").mkdir(parents=True)
        two(tmp_path / name / "1")
        config = f'task = "classification"\nlabels = ["a", "b"]\n[classification]\noutput = "{output}"\n'
        (tmp_path / name / "config.toml").write_text(config)
    with serving(tmp_path) as client:
        for name in ("named", "numbered"):
            body = {"inputs": {"image": IMAGE.tolist(), "mask": MASK.tolist()}}
            found = client.post(f"/models/{name}/infer", json=body).json()["predictions"]
            assert [each["label"] for each in found] == ["b", "a"]
        reason = client.get("/models/wrong").json()["reason"]
    assert "classification.output: found 'out2', expected one of 'logits', 'best'" in reason


def test_the_command_line_has_the_files_names(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, array in (("image", IMAGE), ("mask", MASK)):
        np.save(tmp_path / f"{name}.npy", array)
    output = tmp_path / "out.npz"
    for first, second in (("image", "mask"), ("in0", "in1")):
        flags = ["--input", f"{second}={tmp_path / 'mask.npy'}", f"{first}={tmp_path / 'image.npy'}"]
        assert main(["run", "two", "--store", str(store), *flags, "--output", str(output)]) == 0
        said = capsys.readouterr().out
        assert "logits" in said and "out0" not in said
        np.testing.assert_equal(dict(np.load(output)), EXPECTED)
