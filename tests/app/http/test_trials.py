"""Tests of POST /models/{name}/tune and /compare: access, refusals, one at a time, and cancellation."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from app.http.access import AccessPolicy
from tests.app.client import Client, serving
from tests.app.sample_models import TURNSTILE, elementwise, write_model
from tests.patience import until

QUICK = {"backend": ["reference"], "seconds": 0.01}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    store = tmp_path_factory.mktemp("trials")
    write_model(store, "plus", elementwise("add(@0,1)", "(1,3)f32"))
    write_model(store, "open", elementwise("add(@0,1)", "(?,?)f32"))
    spec = "(1,3)f32"
    slow = ["pnnx.Input in0 0 1 0 #0=" + spec, f"test.Wait w 1 1 0 1 #0={spec} #1={spec}", "pnnx.Output out 1 0 1"]
    write_model(store, "slow", slow)
    spec = "(1,4)f32"
    for name, second in (("chain", "nn.ReLU"), ("other", "nn.Sigmoid")):
        lines = ["pnnx.Input in0 0 1 0 #0=" + spec]
        for at, kind in enumerate(("nn.Tanh", second, "nn.SiLU" if name == "chain" else "nn.Tanh")):
            called = f"own_{name}" if at == 2 else f"step{at}"
            lines.append(f"{kind} {called} 1 1 {at} {at + 1} #{at}={spec} #{at + 1}={spec}")
        write_model(store, name, [*lines, "pnnx.Output out 1 0 3"])
    with serving(store, backend="reference", warmup=False) as client:
        yield client


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.trials.comparing._TURN_S", 0.002)


def events(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    return [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]


def test_candidates_are_told_of_while_they_are_measured(client: Client) -> None:
    answer = client.post("/models/plus/tune", json={**QUICK, "batch": [1, 2]})
    assert answer.headers["content-type"].startswith("text/event-stream")
    found = events(answer)
    assert [found[0]["event"], found[-1]["event"]] == ["plan", "done"] and found[-1]["best"]
    assert found[0]["candidates"][0]["served"] and found[0]["candidates"][0]["advice"]["command"]
    about = client.get("/models/plus/tune").json()
    assert about["served"]["backend"] == "reference" and not about["needs_sample"] and about["passes"]
    assert client.get("/models/open/tune").json()["needs_sample"]


@pytest.mark.parametrize(
    ("name", "body", "status", "told"),
    [
        ("plus", {"threads": [9999]}, 400, "found 9999"), ("plus", {"batch": [-1]}, 400, "batch.0"),
        ("plus", {"passes_off": [["x"]]}, 400, "found 'x'"), ("plus", {"other": 1}, 400, "other"),
        ("plus", {"batch": list(range(1, 17)), "passes_off": [[], ["all"]], "winograd": ["auto", "off"]},
         400, "candidates"),
        ("plus", {"sample": "../1/model.pnnx.bin"}, 404, "no sample"), ("open", QUICK, 400, "input is dynamic"),
        ("unknown", QUICK, 404, "unknown"), ("plus", [], 400, "body"),
    ],
)  # fmt: skip
def test_what_cannot_be_measured_is_refused_by_its_status(
    client: Client, name: str, body: Any, status: int, told: str
) -> None:
    answer = client.post(f"/models/{name}/tune", json=body)
    assert answer.status_code == status and told in answer.json()["error"]["message"]


def test_a_body_is_short_and_json(client: Client) -> None:
    assert client.post("/models/plus/tune", content=b"{").status_code == 400
    assert client.post("/models/plus/tune", content=b" " * 100_000).status_code == 413


def test_one_is_measured_at_a_time_and_it_ends_with_its_client(client: Client) -> None:
    async def leave() -> int:
        first = asyncio.create_task(client.http.post("/models/slow/tune", json=QUICK))
        await asyncio.to_thread(TURNSTILE.wait_until_entered)
        refused = await client.http.post("/models/plus/tune", json=QUICK)
        assert refused.json()["error"]["message"].startswith("another measurement")
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        TURNSTILE.let_through()
        return refused.status_code

    assert client.run(leave()) == 429
    until(lambda: not client.plane.trials.running)
    assert events(client.post("/models/plus/tune", json=QUICK))[-1]["event"] == "done"
    assert client.plane.memory.used == 0


def test_entries_are_compared_by_answer_time_and_operator(client: Client) -> None:
    x = [[-2.0, -0.5, 0.5, 2.0]]
    found = events(client.post("/compare", params={"entries": "chain,other,chain:1:compiled:1"}, json={"inputs": x}))
    assert [found[0]["event"], found[-1]["event"]] == ["plan", "done"]
    assert [each["backend"] for each in found[0]["entries"]] == ["reference", "reference", "compiled"]
    assert [each["served"] for each in found[0]["entries"]] == [True, True, False]
    answers = {each["id"]: each for each in found if each["event"] == "answer"}
    tanh = np.tanh(np.array(x, np.float32))
    silu = np.maximum(tanh, 0) / (1 + np.exp(-np.maximum(tanh, 0)))
    expected = np.abs(np.tanh(1 / (1 + np.exp(-tanh))) - silu).max()
    (output,) = answers[1]["outputs"]
    assert output["max_abs"] == pytest.approx(expected, rel=1e-4) and output["diverges"]
    assert not answers[2]["outputs"][0]["diverges"]
    walked = {each["id"]: each for each in found if each["event"] == "operators"}
    assert [row["operator"] for row in walked[1]["rows"]] == ["step0", "step1"]
    assert [row["diverges"] for row in walked[1]["rows"]] == [False, True]
    assert walked[1]["first"] == {"operator": "step1", "kernel": None}
    assert (walked[1]["unknown"], walked[1]["missing"]) == (["own_other"], ["own_chain"])
    assert walked[1]["rows"][0]["here"]["max"] == pytest.approx(tanh.max())
    assert walked[2]["first"] is None and walked[2]["rows"][-1]["operator"] == "own_chain"
    assert {each["id"] for each in found if each["event"] == "times"} == {0, 1, 2}
    until(lambda: not client.plane.trials.running)
    assert client.plane.memory.used == 0


def test_one_that_cannot_take_the_input_says_so_and_the_others_are_compared(client: Client) -> None:
    found = events(client.post("/compare", params={"entries": "chain,plus,other"}, json={"inputs": [[1, 2, 3, 4]]}))
    answers = {each["id"]: each["problem"] for each in found if each["event"] == "answer"}
    assert answers[0] is answers[2] is None and "wrong shape" in answers[1]
    assert {each["id"] for each in found if each["event"] == "operators"} == {2}


def test_without_a_body_random_values_are_compared_and_a_tolerance_is_heeded(client: Client) -> None:
    found = events(client.post("/compare", params={"entries": "chain,other", "rtol": 1e9}))
    assert [each["first"] for each in found if each["event"] == "operators"] == [None]


@pytest.mark.parametrize(
    ("entries", "status"),
    [
        ("", 400), (",".join(["chain"] * 13), 400), ("chain:1:gpu", 400), ("chain:1:compiled:99999", 400),
        ("chain:1:compiled:9999", 400), ("chain:1:compiled:0", 400), ("chain:x y", 400), ("chain:9", 404),
        ("unknown", 404), (":::", 400), ("open", 400), ("chain:1:compiled:1:1", 400), ("slow:-1", 400),
    ],
)  # fmt: skip
def test_what_is_no_entry_is_refused(client: Client, entries: str, status: int) -> None:
    answer = client.post("/compare", params={"entries": entries})
    if entries == "open":  # found out when it is to be run
        assert "input is dynamic" in events(answer)[-1]["message"]
    else:
        assert answer.status_code == status, answer.text
    for rtol in ("-1", "nan", "x"):
        assert client.post("/compare", params={"entries": "chain", "rtol": rtol}).status_code == 400


@pytest.mark.parametrize(
    ("origin", "host", "is_let_in"),
    [
        (None, "anything", True), ("http://127.0.0.1:8000", "127.0.0.1:8000", True),
        ("http://localhost:8000", "localhost:8000", True), ("http://[::1]:80", "[::1]:80", True),
        ("http://127.0.0.1:9000", "127.0.0.1:8000", False), ("http://evil.test", "127.0.0.1:8000", False),
        ("http://evil.test:8000", "evil.test:8000", False), ("null", "127.0.0.1:8000", False),
        ("http://localhost.evil.test", "localhost.evil.test", False), ("http://[", "[", False),
    ],
)  # fmt: skip
def test_without_keys_only_the_machine_itself_and_the_servers_own_page_on_it_may_measure(
    origin: str | None, host: str, is_let_in: bool
) -> None:
    headers = [(b"host", host.encode()), *([] if origin is None else [(b"origin", origin.encode())])]

    def refused(path: str, address: str) -> bool:
        return AccessPolicy(None).fault("POST", path, headers, b"", (address, 1)) is not None

    assert refused("/models/m/tune", "127.0.0.1") is not is_let_in
    assert refused("/models/m/tune", "192.0.2.7")
    # No web page may change the server, whatever its origin.
    assert refused("/v2/repository/models/m/load", "127.0.0.1") is (origin is not None)
