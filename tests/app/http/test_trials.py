"""POST /models/{name}/tune: who may, what is refused, one at a time, and over when nobody listens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from app.http.access import Access
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
    with serving(store, backend="reference", warmup=False) as client:
        yield client


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
        ("plus", {"batch": list(range(1, 17)), "passes_off": [[], ["all"]], "tune": [True, False]}, 400, "candidates"),
        ("plus", {"sample": "../1/model.pnnx.bin"}, 404, "no sample"), ("open", QUICK, 400, "size open"),
        ("nobody", QUICK, 404, "nobody"), ("plus", [], 400, "body"),
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


def test_one_is_measured_at_a_time_and_it_ends_with_whoever_asked_for_it(client: Client) -> None:
    async def leave() -> int:
        first = asyncio.create_task(client.http.post("/models/slow/tune", json=QUICK))
        await asyncio.to_thread(TURNSTILE.wait_until_entered)
        refused = await client.http.post("/models/plus/tune", json=QUICK)
        assert refused.json()["error"]["message"].startswith("something is measured")
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        TURNSTILE.let_through()
        return refused.status_code

    assert client.run(leave()) == 429
    until(lambda: not client.plane.trials.running)
    assert events(client.post("/models/plus/tune", json=QUICK))[-1]["event"] == "done"
    assert client.plane.memory.used == 0


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
        scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "client": (address, 1)}
        return Access(None, None)._refusal(scope) is not None  # type: ignore[arg-type]

    assert refused("/models/m/tune", "127.0.0.1") is not is_let_in
    assert refused("/models/m/tune", "192.0.2.7")
    # No page changes the server, whoever it is from.
    assert refused("/v2/repository/models/m/load", "127.0.0.1") is (origin is not None)
