"""Models with hooks over HTTP: requests, answers, failures, functions that do not end, changed files."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.app.client import Client, serving
from tests.app.http.v2.messages import tensor
from tests.app.pictures import png
from tests.app.sample_models import elementwise, write_model

BOTH = """
import numpy as np

def preprocess(request):
    if request.content_type.startswith("image/"):
        return {"in0": np.asarray(request.image("L"), np.float32)[:1, :3]}
    given = request.json()
    if "values" not in given:
        raise request.Refused("expected an object with 'values'")
    return {"in0": np.float32([given["values"]])}

def postprocess(outputs):
    return {"largest": outputs["out0"].max(), "all": outputs["out0"]}
"""
ENDLESS = """
import time

def preprocess(request):
    end = time.monotonic() + 30
    while request.body == b"loop" and time.monotonic() < end:
        pass
    return {"in0": [[1, 2, 3]]}
"""


def write_hooks(store: Path, name: str, hooks: str, config: str = "") -> None:
    """Write a model that doubles three numbers, with hooks."""
    write_model(store, name, elementwise("mul(@0,2)", "(1,3)f32"), config=config)
    (store / name / "1" / "hooks.py").write_text(hooks)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    store = tmp_path_factory.mktemp("store")
    write_hooks(store, "both", BOTH)
    write_hooks(store, "endless", ENDLESS)
    write_hooks(store, "before", "def preprocess(request): return {'in0': request.json()}")
    write_hooks(store, "after", "def postprocess(outputs): return float(outputs['out0'].sum())")
    write_hooks(store, "failing", "def postprocess(outputs): raise KeyError('a secret of /etc/passwd')")
    with serving(store, plugins=("hooks.py",), request_timeout_s=20) as client:
        yield client


def send(client: Client, name: str, body: Any, **more: Any) -> httpx.Response:
    return client.post(f"/models/{name}/infer", json=body, **more)


def test_hooks_convert_requests_and_answers(client: Client) -> None:
    answer = send(client, "both", {"values": [1, 5, 3]})
    assert answer.status_code == 200 and answer.json()["predictions"] == {"largest": 10.0, "all": [[2.0, 10.0, 6.0]]}
    assert "outputs" not in answer.json()
    picture = client.post("/models/both/infer", content=png(8, 8, "L"), headers={"content-type": "image/png"})
    pixels = np.asarray(picture.json()["predictions"]["all"])
    assert pixels.shape == (1, 3) and pixels.max() > 0
    by_query = client.post("/infer?model=both", json={"values": [0, 0, 1]})
    assert by_query.json()["predictions"]["largest"] == 2.0


def test_each_hook_may_stand_alone(client: Client) -> None:
    assert send(client, "before", [[1, 2, 3]]).json()["outputs"]["out0"]["data"] == [2, 4, 6]
    assert send(client, "after", {"inputs": {"in0": [[1, 2, 3]]}}).json()["predictions"] == 12.0


def test_raw_outputs_may_be_requested_beside_the_answer(client: Client) -> None:
    answer = send(client, "both", {"values": [1, 5, 3]}, params={"outputs": "out0"}).json()
    assert answer["outputs"]["out0"]["data"] == [2, 10, 6] and answer["predictions"]["largest"] == 10


def test_a_refusal_of_a_hook_reaches_the_client(client: Client) -> None:
    answer = send(client, "both", {"a": 1})
    assert (answer.status_code, answer.json()["error"]) == (
        422, {"code": "input_mismatch", "message": "expected an object with 'values'"},
    )  # fmt: skip


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000])
def test_a_body_that_is_not_json_is_a_fault_of_the_client(client: Client, content: bytes) -> None:
    answer = client.post("/models/both/infer", content=content, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 413) and "Traceback" not in answer.text


def test_a_model_that_only_the_body_names_gets_the_body_by_its_hook(client: Client) -> None:
    body = {"model": "both", "inputs": {"in0": [[1, 2, 3]]}}
    answer = client.post("/infer", json=body)
    assert (answer.status_code, answer.json()["error"]["message"]) == (422, "expected an object with 'values'")


def test_a_pipeline_refuses_a_model_with_hooks(tmp_path: Path) -> None:
    write_hooks(tmp_path, "m", BOTH)
    (tmp_path / "line").mkdir()
    (tmp_path / "line" / "pipeline.toml").write_text('[[step]]\nname = "a"\nmodel = "m"\ninput = "x"\n')
    with serving(tmp_path, plugins=("hooks.py",)) as client:
        assert (
            "step 'a': model 'm' has hooks.py, expected a model without" in client.get("/models/line").json()["reason"]
        )


def test_a_failure_of_a_hook_tells_the_client_neither_message_nor_path(client: Client) -> None:
    answer = send(client, "failing", {"inputs": {"in0": [[1, 2, 3]]}})
    message = "hooks.py: postprocess raised KeyError; the server's log says more"
    assert (answer.status_code, answer.json()["error"]) == (500, {"code": "hook_failed", "message": message})


def test_what_a_hook_returns_must_fit_the_model(client: Client) -> None:
    answer = send(client, "before", {"in0": 1})
    assert answer.status_code == 500 and "input 'in0': found dict, expected" in answer.json()["error"]["message"]
    assert send(client, "before", [[1, 2]]).status_code == 422


def test_the_v2_protocol_runs_the_network_without_hooks(client: Client) -> None:
    body = {"inputs": [tensor("in0", "FP32", np.float32([[1, 2, 3]]))]}
    assert client.post("/v2/models/both/infer", json=body).json()["outputs"][0]["data"] == [2, 4, 6]


def test_a_hook_that_does_not_end_gets_504_and_the_server_goes_on(client: Client) -> None:
    async def many() -> list[httpx.Response]:
        stuck = [
            client.http.post("/models/endless/infer", content=b"loop", headers={"x-request-timeout-ms": "300"})
            for _ in range(8)
        ]
        others = [client.http.post("/models/both/infer", json={"values": [1, 2, 3]}) for _ in range(20)]
        return await asyncio.gather(*stuck, *others)

    began = time.monotonic()
    answers = client.run(many())
    assert {answer.status_code for answer in answers[:8]} == {504}
    assert {answer.status_code for answer in answers[8:]} == {200}
    assert time.monotonic() - began < 15
    assert client.post("/models/endless/infer", content=b"fine").json()["outputs"]["out0"]["data"] == [2, 4, 6]


def test_hooks_that_are_not_allowed_keep_the_model_from_loading(tmp_path: Path) -> None:
    write_hooks(tmp_path, "m", BOTH)
    with serving(tmp_path) as client:
        assert "expected 'hooks.py' in the setting plugins" in client.get("/models/m").json()["reason"]


def test_a_changed_hook_takes_effect_and_an_invalid_one_does_not(tmp_path: Path) -> None:
    write_hooks(tmp_path, "m", "def postprocess(outputs): return 1")
    with serving(tmp_path, plugins=("hooks.py",), reload_interval_s=0.05) as client:

        def answered() -> Any:
            return send(client, "m", {"inputs": {"in0": [[1, 2, 3]]}}).json()["predictions"]

        def settles(check: Any) -> bool:
            until = time.monotonic() + 20
            while not check() and time.monotonic() < until:
                client.run(asyncio.sleep(0.05))
            return bool(check())

        assert answered() == 1
        (tmp_path / "m" / "1" / "hooks.py").write_text("def postprocess(outputs): return 2")
        assert settles(lambda: answered() == 2)
        (tmp_path / "m" / "1" / "hooks.py").write_text("def postprocess(outputs: return 3")
        assert settles(lambda: "hooks.py, line 1: SyntaxError" in (client.get("/models/m").json()["reason"] or ""))
        assert answered() == 2
