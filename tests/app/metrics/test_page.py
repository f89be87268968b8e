"""Tests of GET /metrics with Prometheus' own parser."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from app.metrics.collector import FAMILIES, Kind, Snapshot, read_models
from app.models.registry.store import Store
from tests.app.client import Client, serving
from tests.app.sample_models import TURNSTILE, elementwise, through, write_model

OPENMETRICS = {"accept": "application/openmetrics-text; version=1.0.0; charset=utf-8"}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    write_model(tmp_path, "one", elementwise("add(@0,1)", "(?,2)f32"))
    write_model(tmp_path, "fails", through("test.Fail", "(1,2)f32"))
    (tmp_path / "broken" / "1").mkdir(parents=True)
    (tmp_path / "broken" / "1" / "model.pnnx.param").write_text("no such magic")
    with serving(tmp_path) as client:
        yield client


def families(client: Client) -> dict[str, Metric]:
    return {family.name: family for family in parse_text(client.get("/metrics").text)}


def value(client: Client, sample: str, **labels: str) -> float:
    """Return the only sample with at least these labels."""
    (found,) = [
        each.value
        for family in families(client).values()
        for each in family.samples
        if each.name == sample and labels.items() <= each.labels.items()
    ]
    return found


def test_requests_are_counted_by_outcome(client: Client) -> None:
    assert value(client, "pnnx_serve_requests_total", model="one", outcome="ok") == 0
    statuses = [client.infer("one", [[1, 2]] * 3).status_code, client.infer("one", [[1, 2, 3]]).status_code]
    statuses.append(client.infer("fails", [[1, 2]]).status_code)
    assert statuses == [200, 422, 500]
    assert value(client, "pnnx_serve_requests_total", model="one", outcome="ok") == 1
    assert value(client, "pnnx_serve_requests_total", model="one", outcome="input_mismatch") == 1
    assert value(client, "pnnx_serve_requests_total", model="fails", outcome="inference_failed") == 1
    assert value(client, "pnnx_serve_http_responses_total", status="422") == 1


def test_answers_fall_into_buckets_of_time_and_of_items(client: Client) -> None:
    for items in (1, 1, 3, 200):
        assert client.infer("one", [[1, 2]] * items).status_code == 200
    for end, expected in (("1.0", 2), ("2.0", 2), ("4.0", 3), ("128.0", 3), ("+Inf", 4)):
        assert value(client, "pnnx_serve_request_items_bucket", model="one", le=end) == expected
    assert value(client, "pnnx_serve_request_items_sum", model="one") == 205
    total = value(client, "pnnx_serve_request_seconds_sum", model="one")
    stages = [
        value(client, "pnnx_serve_stage_seconds_sum", model="one", stage=stage)
        for stage in ("queue", "preprocess", "inference", "postprocess")
    ]
    assert total == pytest.approx(sum(stages)) and min(stages) >= 0 < total
    assert value(client, "pnnx_serve_request_seconds_bucket", model="one", le="+Inf") == 4


def test_states_of_models_are_told_of_those_that_failed_too(client: Client) -> None:
    assert value(client, "pnnx_serve_model_state", model="one", state="ready") == 1
    assert value(client, "pnnx_serve_model_state", model="one", state="failed") == 0
    assert value(client, "pnnx_serve_model_state", model="broken", state="failed") == 1
    assert value(client, "pnnx_serve_model_load_seconds", model="one") > 0
    assert value(client, "pnnx_serve_ready", worker="0") == 0


def test_both_formats_say_the_same_and_every_family_is_in_them(client: Client) -> None:
    client.infer("one", [[1, 2]])
    text, opened = client.get("/metrics"), client.get("/metrics", headers=OPENMETRICS)
    assert text.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert opened.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    kinds = {family.name: family.type for family in parse_openmetrics(opened.text)}
    expected = {name.removesuffix("_total"): str(family.kind) for name, family in FAMILIES.items()}
    assert kinds == expected == {f.name.removesuffix("_total"): f.type for f in parse_text(text.text)}


def test_nothing_a_client_sends_becomes_a_label(client: Client) -> None:
    client.infer("nosuch-model", [[1]])
    client.get("/models/one/graph?version=77777")
    client.request("PROPFIND", "/nosuch-path")
    page = client.get("/metrics").text
    assert not any(sent in page for sent in ("nosuch", "77777", "PROPFIND"))


@pytest.mark.parametrize("labels", [1, 7, 8, 9, 30])
def test_a_page_of_many_models_has_each_sample_once_and_one_head_a_family(tmp_path: Path, labels: int) -> None:
    for index in range(labels):
        (tmp_path / f"m{index}" / "1").mkdir(parents=True)
        (tmp_path / f"m{index}" / "1" / "model.pnnx.param").write_text("no such magic")
    with serving(tmp_path) as client:
        page = client.get("/metrics", headers=OPENMETRICS).text
    lines = [line.rpartition(" ")[0] if not line.startswith("#") else line for line in page.splitlines()]
    assert len(lines) == len(set(lines)) and lines[-1] == "# EOF"
    states = next(family for family in parse_openmetrics(page) if family.name == "pnnx_serve_model_state")
    assert {sample.labels["model"] for sample in states.samples} == {f"m{index}" for index in range(labels)}


def test_a_scrape_is_answered_while_every_thread_is_at_work_and_tells_what_waits(tmp_path: Path) -> None:
    write_model(tmp_path, "slow", through("test.Wait", "(1,2)f32"))

    async def crowd(client: Client) -> str:
        body = {"inputs": [[1, 2]]}
        asked = [asyncio.create_task(client.http.post("/models/slow/infer", json=body)) for _ in range(3)]
        await asyncio.to_thread(TURNSTILE.wait_until_entered)
        while client.plane.store.version("slow").scheduler.queued < 2:
            await asyncio.sleep(0)
        page = (await client.http.get("/metrics")).text
        TURNSTILE.let_through(3)
        assert [(await each).status_code for each in asked] == [200] * 3
        for _ in range(2):
            TURNSTILE.wait_until_entered()
        return page

    with serving(tmp_path, warmup=False, max_in_flight=1) as client:
        page = client.run(crowd(client))
    assert 'pnnx_serve_queued_requests{model="slow",version="1"} 2.0' in page
    assert 'pnnx_serve_running_requests{model="slow",version="1"} 1.0' in page


def series(page: str, model: str) -> list[str]:
    """Return the lines of a model in a page."""
    return [line for line in page.splitlines() if f'model="{model}"' in line]


def test_an_idle_model_has_few_series_and_histograms_come_with_its_first_request(tmp_path: Path) -> None:
    for name in ("one", "kept"):
        write_model(tmp_path, name, elementwise("add(@0,1)", "(?,2)f32"))
    (tmp_path / "kept" / "config.toml").write_text("[response_cache]\nmax_bytes = 100000\n")
    with serving(tmp_path) as client:
        for name in ("one", "kept"):
            assert client.infer(name, [[1]]).status_code == 422  # it was not answered
            page = client.get("/metrics").text
            assert 8 <= len(series(page, name)) - 1 <= 12 and "_bucket" not in "".join(series(page, name))
            assert client.infer(name, [[1, 2]]).status_code == 200
            assert len(series(client.get("/metrics").text, name)) > 100


def test_memory_of_models_is_told_by_kind(tmp_path: Path) -> None:
    weight = np.ones((256, 100), np.float32)
    sizes = "bias=False in_features=100 out_features=256 @weight=(256,100)f32"
    lines = [
        "pnnx.Input in 0 1 0 #0=(1,100)f32",
        f"nn.Linear fc 1 1 0 1 {sizes} #0=(1,100)f32 #1=(1,256)f32",
        "pnnx.Output out 1 0 1 #1=(1,256)f32",
    ]
    write_model(tmp_path, "linear", lines, {"fc.weight": weight})
    with serving(tmp_path) as client:
        assert value(client, "pnnx_serve_model_bytes", model="linear", kind="weights") == weight.nbytes
        assert value(client, "pnnx_serve_model_bytes", model="linear", kind="compiled") >= weight.nbytes
    with serving(tmp_path, backend="reference") as client:
        assert value(client, "pnnx_serve_model_bytes", model="linear", kind="weights") == weight.nbytes
        assert value(client, "pnnx_serve_model_bytes", model="linear", kind="compiled") == 0


def test_a_page_is_read_and_written_beside_the_event_loop(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def read(store: Store, **more: bool) -> Snapshot:
        threads.append(threading.current_thread())
        return read_models(store, **more)

    monkeypatch.setattr("app.metrics.collector.read_models", read)
    client.infer("one", [[1, 2]])

    async def test() -> None:
        scrape = asyncio.create_task(client.http.get("/metrics"))
        assert (await client.http.get("/health/live")).status_code == 200
        assert (await scrape).status_code == 200

    client.run(test())
    assert threads and threading.current_thread() not in threads


def test_figures_may_be_read_while_others_are_counted(tmp_path: Path) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    with serving(tmp_path) as client:
        version, is_over = client.plane.store.entries[0].versions[0], threading.Event()

        def count() -> None:
            for number in itertools.count():
                version.statistics.failures[f"code{number % 5000}"] += 1
                if is_over.is_set():
                    return

        thread = threading.Thread(target=count)
        thread.start()
        try:
            for _ in range(20):
                assert client.get("/metrics").status_code == 200
        finally:
            is_over.set()
            thread.join()


def test_what_was_compiled_is_told(client: Client) -> None:
    made = {origin: value(client, "pnnx_serve_programs_total", origin=origin) for origin in ("compiled", "cache")}
    assert sum(made.values()) >= 1
    assert value(client, "pnnx_serve_instances") >= 1 and value(client, "pnnx_serve_instances_bytes") > 0


def test_counters_have_total_at_their_end_and_nothing_else_has() -> None:
    assert {name for name in FAMILIES if name.endswith("_total")} == {
        name for name, family in FAMILIES.items() if family.kind is Kind.COUNTER
    }
