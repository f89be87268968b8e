"""Deadline, cancellation, queue and memory of requests to a pipeline."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from tests.app.client import Client, serving
from tests.app.pipelines.conftest import write_pipeline
from tests.app.pipelines.test_replacement import TEXT
from tests.app.sample_models import (
    TURNSTILE,
    elementwise,
    through,
    write_classifier,
    write_detector,
    write_model,
)
from tests.patience import until

WAITING = """
[[step]]
name = "wait"
model = "wait"
input = "x"

[[step]]
name = "one"
model = "one"
input = "wait.outputs.out0"
"""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    write_model(tmp_path, "wait", through("test.Wait", "(?,2)f32"))
    write_model(tmp_path, "one", elementwise("add(@0,1)", "(?,2)f32"))
    write_pipeline(tmp_path, "waiting", WAITING)
    with serving(tmp_path, backend="reference", max_in_flight=1, max_queue=1, warmup=False) as client:
        yield client


def test_a_deadline_ends_the_request_and_no_further_step_runs(client: Client) -> None:
    async def ask() -> int:
        body = {"json": {"inputs": [[1, 2]]}, "headers": {"x-request-timeout-ms": "50"}}
        return (await client.http.post("/models/waiting/infer", **body)).status_code

    assert client.run(ask()) == 504
    TURNSTILE.let_through_until(lambda: not client.plane.is_busy)
    assert "pnnx_serve_step_seconds_count" not in client.get("/metrics").text
    assert client.plane.memory.used == 0


def test_a_client_that_leaves_cancels_its_request(client: Client) -> None:
    async def leave() -> None:
        task = asyncio.create_task(client.http.post("/models/waiting/infer", json={"inputs": [[1, 2]]}))
        await asyncio.to_thread(TURNSTILE.wait_until_entered)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    client.run(leave())
    TURNSTILE.let_through()
    until(lambda: not client.plane.is_busy)
    assert 'outcome="cancelled"' in client.get("/metrics").text
    assert client.plane.memory.used == 0


def test_requests_wait_in_the_queue_of_the_pipeline(client: Client) -> None:
    async def ask_three() -> list[int]:
        tasks = [asyncio.create_task(client.http.post("/models/waiting/infer", json={"inputs": [[1, 2]]}))]
        await asyncio.to_thread(TURNSTILE.wait_until_entered)
        tasks += [asyncio.create_task(client.http.post("/models/waiting/infer", json={"inputs": [[1, 2]]}))]
        scheduler = client.plane.store.version("waiting").scheduler
        while scheduler.waiting == 0:
            await asyncio.sleep(0.001)
        refused = await client.http.post("/models/waiting/infer", json={"inputs": [[1, 2]]})
        assert client.plane.store.version("wait").scheduler.is_empty
        TURNSTILE.let_through(2)
        answers = [await task for task in tasks]
        assert all(answer.json()["outputs"]["one.out0"]["data"] == [2, 3] for answer in answers)
        return [refused.status_code, *(answer.status_code for answer in answers)]

    assert client.run(ask_three()) == [429, 200, 200]
    TURNSTILE.wait_until_entered()


def test_a_picture_that_needs_more_memory_than_there_is_is_refused(tmp_path: Path) -> None:
    write_detector(tmp_path)
    write_classifier(tmp_path)
    write_pipeline(tmp_path, "scan", TEXT)
    with serving(tmp_path, max_bytes_in_flight=1 << 20, max_pixels=1 << 22) as client:
        small, large, huge = (_png(side) for side in (64, 1500, 3000))
        headers = {"content-type": "image/png"}
        assert client.post("/models/scan/infer", content=small, headers=headers).status_code == 200
        refused = client.post("/models/scan/infer", content=large, headers=headers)
        assert refused.status_code == 413 and "too much memory" in refused.json()["error"]["message"]
        refused = client.post("/models/scan/infer", content=huge, headers=headers)
        assert refused.status_code == 413 and "too many pixels" in refused.json()["error"]["message"]
        assert client.plane.memory.used == 0


def _png(side: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (side, side)).save(out, "PNG")
    return out.getvalue()
