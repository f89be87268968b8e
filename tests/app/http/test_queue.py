"""Tests of the queue as clients see it: waits, refusals, and light requests without threads."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.models.runs import Runs
from tests.app.client import Client, serving
from tests.app.pictures import npy, png
from tests.app.sample_models import elementwise, write_classifier, write_model
from tests.app.scheduling.tasks import Order, Task, soon, until

LARGE = {"inputs": np.zeros((1, 50_000)).tolist()}
V2 = {"inputs": [{"name": "in0", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]}


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the threads that models run in."""
    found: list[str] = []
    run = Runs.run

    def told(self: Runs, *args: Any) -> Any:
        found.append(threading.current_thread().name)
        return run(self, *args)

    monkeypatch.setattr(Runs, "run", told)
    return found


def quick(client: Client, name: str) -> None:
    """Set step times as measured on an idle machine."""
    model = client.plane.store.version(name).model
    assert model is not None
    model.inline_policy.run_s = model.inline_policy.rest_s = 0.0


def test_what_is_short_and_for_a_quick_model_is_run_without_a_thread(tmp_path: Path, threads: list[str]) -> None:
    write_classifier(tmp_path)
    here = threading.current_thread().name
    with serving(tmp_path, threads=1) as client:
        quick(client, "shades")
        threads.clear()
        pixels = [[[[1, 0], [0, 0]]]]
        picture = {"content-type": "image/png"}
        assert client.infer("shades", pixels).json()["predictions"][0]["label"] == "left"
        assert client.post("/infer", content=png(2, 2, "L"), headers=picture).status_code == 200
        assert client.post("/infer", content=png(128, 128, "L"), headers=picture).status_code == 200
        assert threads == [here] * 3
        assert client.infer("shades", pixels * 2).status_code == 200  # not what was measured
        assert client.post("/infer", content=png(128, 129, "L"), headers=picture).status_code == 200
        assert client.post("/infer", content=png(2, 2, "L") + bytes(9000), headers=picture).status_code == 200
        assert client.infer("shades", pixels, padding="x" * 10_000).status_code in (200, 400)
        assert all(each.startswith("scheduler-shades") for each in threads[3:]) and len(threads) >= 6
        assert client.infer("shades", [[1]]).status_code == 422
        for broken in (b"\x89PNG\r\n\x1a\n", png(2, 2, "L")[:-30], png(2, 2, "L")[:40]):
            assert client.post("/infer", content=broken, headers=picture).status_code == 400


def test_values_that_are_taken_and_answered_as_they_lie_need_no_thread_however_many(
    tmp_path: Path, threads: list[str]
) -> None:
    write_model(tmp_path, "one", elementwise("add(@0,1)", "(1,50000)f32"))
    here, x = threading.current_thread().name, np.zeros((1, 50_000), np.float32)
    with serving(tmp_path, threads=1) as client:
        quick(client, "one")
        for accept, is_here in (("application/x-npy", True), ("application/json", False), ("application/x-npz", False)):
            threads.clear()
            headers = {"content-type": "application/x-npy", "accept": accept}
            assert client.post("/infer", content=npy(x), headers=headers).status_code == 200
            assert (threads == [here]) is is_here
        for is_binary in (True, False):
            threads.clear()
            tensor = {"name": "in0", "shape": [1, 50_000], "datatype": "FP32"}
            tensor["parameters"] = {"binary_data_size": x.nbytes}
            head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": is_binary}}).encode()
            headers = {"inference-header-content-length": str(len(head))}
            answer = client.post("/v2/models/one/infer", content=head + x.tobytes(), headers=headers)
            assert answer.status_code == 200 and (threads == [here]) is is_binary


def test_light_v2_requests_are_run_without_a_thread(tmp_path: Path, threads: list[str]) -> None:
    write_model(tmp_path, "one", elementwise("add(@0,1)", "(1,3)f32"))
    with serving(tmp_path, threads=1) as client:
        quick(client, "one")
        threads.clear()
        answer = client.post("/v2/models/one/infer", json=V2).json()
        assert answer["outputs"][0]["data"] == [2, 3, 4] and threads == [threading.current_thread().name]


def busy(client: Client, path: str, **more: Any) -> Any:
    """Return the answer to a request while a run of a slow model is held."""

    async def test() -> Any:
        scheduler = client.plane.store.version("one").scheduler
        scheduler.step_times.item_s.value, scheduler.step_times._item_turnaround_s.value = 61.0, None
        task = Task("held", Order(), is_held=True)
        held = asyncio.create_task(scheduler.run(task, soon()))
        await task.running()
        try:
            return await client.http.post(path, **more)
        finally:
            task.release.set()
            await held
            await until(lambda: not scheduler.is_busy)

    return client.run(test())


@pytest.mark.parametrize("path", ["/models/one/infer", "/infer?model=one", "/v2/models/one/infer"])
def test_who_has_not_the_time_to_wait_is_refused_at_once_and_a_long_body_is_not_even_parsed(
    tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_model(tmp_path, "one", elementwise("add(@0,1)", "(1,3)f32"))
    with serving(tmp_path, threads=1) as client:
        assert client.post("/v2/models/one/infer", json=V2).status_code == 200
        monkeypatch.setattr(client.plane, "offload", lambda *_: pytest.fail("it was parsed"))
        for body in (V2 if "v2" in path else {"inputs": [[1, 2, 3]]}, LARGE):
            answer = busy(client, path, json=body, headers={"x-request-timeout-ms": "20000"})
            assert answer.status_code == 429 and 41 <= int(answer.headers["retry-after"]) < 61
        failures = client.get("/models/one").json()["versions"][0]["statistics"]["failures"]
        assert failures == {"queue_full": 2}


def test_the_header_ends_the_waiting(tmp_path: Path) -> None:
    write_model(tmp_path, "one", elementwise("add(@0,1)", "(1,3)f32"))
    with serving(tmp_path, threads=1) as client:
        client.plane.store.version("one").scheduler.step_times.item_s.value = None

        async def test() -> int:
            scheduler = client.plane.store.version("one").scheduler
            task = Task("held", Order(), is_held=True)
            held = asyncio.create_task(scheduler.run(task, soon()))
            await task.running()
            body = {"inputs": [[1, 2, 3]]}
            answer = await client.http.post("/models/one/infer", json=body, headers={"x-request-timeout-ms": "50.5"})
            assert scheduler.queued == 0
            task.release.set()
            await held
            return answer.status_code

        assert client.run(test()) == 504


@pytest.mark.parametrize("value", ["", "0", "0.0", "-1", "1e3", "nan", "soon", "9" * 40, "٣"])
def test_a_header_that_is_no_time_is_refused(zoo: Client, value: str) -> None:
    headers = {"x-request-timeout-ms": value.encode()}
    answer = zoo.post("/models/one/infer", json={"inputs": [[1, 2, 3]]}, headers=headers)  # type: ignore[arg-type]
    assert answer.status_code == 400 and "X-Request-Timeout-Ms" in answer.json()["error"]["message"]
    answer = zoo.post("/v2/models/one/infer", json=V2, headers=headers)  # type: ignore[arg-type]
    assert answer.status_code == 400 and "X-Request-Timeout-Ms" in answer.json()["error"]


def test_a_header_longer_than_the_setting_changes_nothing(zoo: Client) -> None:
    headers = {"x-request-timeout-ms": "999999999999"}
    assert zoo.post("/models/one/infer", json={"inputs": [[1, 2, 3]]}, headers=headers).status_code == 200
