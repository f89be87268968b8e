"""Tests of what clients of the protocol may change."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import httpx
import numpy as np
import pytest

from tests.app.client import Client
from tests.app.http.v2.messages import refused, send, tensor

TRACE = {
    "trace_file": "", "trace_level": ["OFF"], "trace_rate": "1000", "trace_count": "-1", "log_frequency": "0",
}  # fmt: skip
PLACE = {"shared_memory_region": "r", "shared_memory_byte_size": 64}
ROW = tensor("INPUT0", "FP32", np.ones((1, 16), np.float32))


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    before = logging.getLogger().level
    yield
    logging.getLogger().setLevel(before)


def test_the_index_lists_every_version_with_its_state(v2: Client) -> None:
    rows = v2.post("/v2/repository/index").json()
    assert {"name": "simple", "version": "1", "state": "READY", "reason": ""} in rows
    assert v2.post("/v2/repository/index", json={"ready": True}).json() == rows


def test_the_level_of_the_log_is_shown_and_changed(v2: Client) -> None:
    logging.getLogger().setLevel(logging.INFO)
    before = v2.get("/v2/logging").json()
    assert before["log_info"] is True and before["log_verbose_level"] == 0
    assert v2.post("/v2/logging", json={"log_verbose_level": 1}).json()["log_verbose_level"] == 1
    assert v2.post("/v2/logging", json={"log_verbose_level": 1.0}).json()["log_verbose_level"] == 1
    assert logging.getLogger().level == logging.DEBUG
    changed = v2.post("/v2/logging", json={"log_verbose_level": 0, "log_info": False}).json()
    assert changed["log_info"] is False and logging.getLogger().level == logging.WARNING


@pytest.mark.parametrize(
    "wanted",
    [{"log_file": "/etc/x"}, {"log_info": 1}, {"log_verbose_level": -1}, {"log_verbose_level": True}, {"x": 1}],
)
def test_log_settings_that_do_not_fit_change_nothing(v2: Client, wanted: dict[str, object]) -> None:
    before = v2.get("/v2/logging").json()
    refused(v2.post("/v2/logging", json={"log_verbose_level": 1, **wanted}))
    assert v2.get("/v2/logging").json() == before


def test_one_in_so_many_requests_is_told_in_the_log(v2: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert v2.get("/v2/trace/setting").json() == TRACE
    wanted = {"trace_level": ["TIMESTAMPS"], "trace_rate": "2", "trace_count": "2"}
    assert v2.post("/v2/models/simple/trace/setting", json=wanted).json() == {**TRACE, **wanted}
    for number in range(6):
        send(v2, "simple", {"inputs": [ROW], "id": str(number)})
    told = [record.id for record in caplog.records if record.name == "app.trace"]  # type: ignore[attr-defined]
    assert told == ["1", "3"] and v2.get("/v2/models/simple/trace/setting").json()["trace_count"] == "0"
    cleared = v2.post("/v2/models/simple/trace/setting", json=dict.fromkeys(wanted)).json()
    assert cleared == TRACE == v2.get("/v2/trace/setting").json()


@pytest.mark.parametrize(
    "wanted",
    [{"trace_rate": 10}, {"trace_rate": "0"}, {"trace_rate": "x"}, {"trace_level": "OFF"}, {"trace_level": ["ALL"]},
     {"trace_count": "-2"}, {"trace_file": "x"}, {"x": "1"}],
)  # fmt: skip
def test_trace_settings_that_do_not_fit_are_refused(v2: Client, wanted: dict[str, object]) -> None:
    refused(v2.post("/v2/trace/setting", json=wanted))
    assert v2.get("/v2/trace/setting").json() == TRACE


@pytest.mark.parametrize("path", ["/v2/logging", "/v2/trace/setting", "/v2/models/simple/trace/setting"])
def test_settings_are_changed_from_this_machine_only(v2: Client, path: str) -> None:
    async def far() -> httpx.Response:
        transport = httpx.ASGITransport(app=v2.app, client=("192.0.2.7", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as http:
            assert (await http.get(path)).status_code == 200
            return await http.post(path, json={})

    assert "machine" in refused(v2.run(far()), 403)


@pytest.mark.parametrize(("kind", "why"), [("system", "not enabled"), ("cuda", "GPUs not supported")])
def test_shared_memory_is_not_registered_and_asking_to_forget_it_is_no_mistake(v2: Client, kind: str, why: str) -> None:
    base = f"/v2/{kind}sharedmemory"
    assert v2.get(f"{base}/status").json() == []
    refused(v2.get(f"{base}/region/r/status"), 404)
    region = {"key": "/r", "offset": 0, "byte_size": 64}
    assert why in refused(v2.post(f"{base}/region/r/register", json=region))
    for path in (f"{base}/unregister", f"{base}/region/r/unregister"):
        assert v2.post(path).status_code == 200
    in_memory = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 16], "parameters": PLACE}
    assert "not enabled" in refused(send(v2, "simple", {"inputs": [in_memory]}))
    out = [{"name": "OUTPUT0", "parameters": PLACE}]
    assert "not enabled" in refused(send(v2, "simple", {"inputs": [ROW], "outputs": out}))


def test_what_a_path_does_not_take_is_refused_with_all_that_it_takes(v2: Client) -> None:
    for path in ("/v2/logging", "/v2/trace/setting", "/v2/models/simple/trace/setting"):
        answer = v2.request("DELETE", path)
        assert answer.status_code == 405 and set(answer.headers["allow"].split(", ")) == {"GET", "HEAD", "POST"}


def test_a_body_that_is_no_object_is_refused_wherever_one_is_read(v2: Client) -> None:
    for path in ("region/a/register", "region/a/unregister", "unregister"):
        refused(v2.post(f"/v2/systemsharedmemory/{path}", json=[None]), 400)
