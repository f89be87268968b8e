"""Tests of cached answers over HTTP: equal to computed ones, marked as hits, and dropped with their model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.models.batcher import Batcher, Verdict
from app.models.model import Call
from tests.app.client import Client, serving
from tests.app.http.v2.messages import binary, send, tensor
from tests.app.pictures import npy, png
from tests.app.sample_models import elementwise, through, write_classifier, write_detector, write_model
from tests.app.scheduling.tasks import Order, hold, until

CACHE = "[response_cache]\n"
ONE = elementwise("add(@0,1)", "(?,3)f32")
X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the models that run, in order."""
    seen: list[str] = []
    run = Call.run

    def counted(call: Call[Any], *arguments: Any) -> Any:
        if call._ran is None:
            seen.append(call._model.name)
        return run(call, *arguments)

    monkeypatch.setattr(Call, "run", counted)
    return seen


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    write_model(tmp_path, "one", ONE, config=CACHE)
    write_model(tmp_path, "plain", ONE)
    with serving(tmp_path, metrics_triton_names=True) as client:
        yield client


def cached(answer: httpx.Response) -> str | None:
    assert answer.status_code == 200, answer.text
    return answer.headers.get("x-cache")


def test_the_same_tensor_is_run_once_in_whatever_form_it_comes(client: Client, runs: list[str]) -> None:
    runs.clear()
    row, tail = binary("in0", "FP32", X)
    answers = [
        client.infer("one", X.tolist()),
        client.infer("one", {"in0": {"shape": [2, 3], "dtype": "float32", "data": X.ravel().tolist()}}),
        client.post("/models/one/infer", content=npy(X), headers={"content-type": "application/x-npy"}),
        client.post(
            "/models/one/infer?outputs=out0", json={"inputs": X.tolist()}, headers={"accept": "application/x-npz"}
        ),
        send(client, "one", {"inputs": [tensor("in0", "FP32", X)]}),
        send(client, "one", {"inputs": [row]}, tail),
    ]
    assert [cached(answer) for answer in answers] == ["miss", *["hit"] * 5] and runs == ["one"]
    assert answers[0].json()["outputs"] == answers[2].json()["outputs"]
    assert answers[4].json()["outputs"][0]["data"] == (X + 1).ravel().tolist()


def test_another_tensor_is_another_answer(client: Client) -> None:
    for value in range(5):
        for expected in ("miss", "hit"):
            answer = client.infer("one", [[value, 0, 0]])
            assert cached(answer) == expected and answer.json()["outputs"]["out0"]["data"] == [value + 1, 1, 1]


def test_models_without_the_table_keep_nothing(client: Client, runs: list[str]) -> None:
    runs.clear()
    assert [cached(client.infer("plain", X.tolist())) for _ in range(2)] == [None, None] and runs == ["plain"] * 2
    assert "cache_ms" not in client.infer("plain", X.tolist()).json()["timing"]
    assert "response_cache" not in client.get("/models/plain").json()["versions"][0]


def test_hits_and_misses_are_told_wherever_figures_are(client: Client) -> None:
    for _ in range(3):
        client.infer("one", X.tolist())
    assert client.infer("one", X.tolist()).json()["timing"]["cache_ms"] >= 0
    version = client.get("/models/one").json()["versions"][0]
    assert version["statistics"]["cache"] == {"hits": 3, "misses": 1} and version["statistics"]["requests"] == 4
    kept = version["response_cache"]
    assert kept["entries"] == 1 and X.nbytes <= kept["bytes"] <= kept["max_bytes"] == 64 << 20
    (stats,) = client.get("/v2/models/one/stats").json()["model_stats"]
    inference = stats["inference_stats"]
    assert (inference["cache_hit"]["count"], inference["cache_miss"]["count"]) == (3, 1)
    assert inference["cache_hit"]["ns"] > 0 and inference["cache_miss"]["ns"] > 0
    assert (inference["success"]["count"], inference["compute_infer"]["count"]) == (4, 1)
    assert (stats["inference_count"], stats["execution_count"]) == (2, 1)
    assert [(row["batch_size"], row["compute_infer"]["count"]) for row in stats["batch_stats"]] == [(2, 1)]
    assert client.get("/v2/models/one/config").json()["response_cache"] == {"enable": True}
    assert client.get("/v2/models/plain/config").json()["response_cache"] == {"enable": False}


def test_metrics_tell_of_the_cache(client: Client) -> None:
    for _ in range(3):
        client.infer("one", X.tolist())
    found = {
        (sample.name, sample.labels.get("outcome")): sample.value
        for family in text_string_to_metric_families(client.get("/metrics").text)
        for sample in family.samples
        if "cache" in sample.name
    }
    assert found[("pnnx_serve_response_cache_lookups_total", "hit")] == 2
    assert found[("pnnx_serve_response_cache_lookups_total", "miss")] == 1
    assert found[("pnnx_serve_response_cache_entries", None)] == 1
    assert found[("nv_cache_num_hits_per_model", None)] == 2 and found[("nv_cache_num_misses_per_model", None)] == 1


def write_tasks(store: Path) -> None:
    write_classifier(store, config=f'task = "classification"\n{CACHE}')
    write_detector(store, config=CACHE)
    write_model(store, "areas", elementwise("mul(@0,1)", "(1,3,4,6)f32"), config=f'task = "segmentation"\n{CACHE}')
    write_model(store, "picture", elementwise("mul(@0,1)", "(1,3,4,6)f32"), config=f'task = "image"\n{CACHE}')
    write_model(store, "same", through("torch.clone", "(?,3,4,6)f32"), config=CACHE)


@pytest.mark.parametrize("accept", ["application/json", "application/x-npz", "image/png"])
@pytest.mark.parametrize("model", ["shades", "boxes", "areas", "picture", "same"])
def test_what_a_task_makes_of_kept_outputs_is_what_it_makes_of_computed_ones(
    tmp_path: Path, model: str, accept: str
) -> None:
    write_tasks(tmp_path)
    with serving(tmp_path) as client:
        shown = {"content": png(6, 4), "headers": {"content-type": "image/png", "accept": f"{accept}, */*;q=0.1"}}
        answers = [client.post(f"/models/{model}/infer?outputs=true", **shown) for _ in range(3)]
    assert [cached(answer) for answer in answers] == ["miss", "hit", "hit"]
    assert len({told(answer) for answer in answers}) == 1


def told(answer: httpx.Response) -> bytes:
    """Return all of an answer except its times."""
    if answer.headers["content-type"] != "application/json":
        return answer.content
    return json.dumps({key: value for key, value in answer.json().items() if key != "timing"}).encode()


def test_a_model_of_chance_is_not_served_with_a_cache(tmp_path: Path) -> None:
    lines = through("torch.randn_like", "(2,3)f32")
    write_model(tmp_path, "dice", lines, config=CACHE)
    write_model(tmp_path, "own", through("test.Fail", "(?,2)f32"), config=CACHE)
    write_model(tmp_path, "free", lines)
    with serving(tmp_path) as client:
        rows = {row["name"]: row for row in client.get("/models").json()["models"]}
    assert {name: row["state"] for name, row in rows.items()} == {"dice": "failed", "own": "failed", "free": "ready"}
    assert "response_cache" in rows["dice"]["reason"] and "not repeatable" in rows["own"]["reason"]


@pytest.mark.parametrize(
    "table", ["max_bytes = 0", "max_bytes = -1", "max_bytes = 1.5", "bytes = 7", 'max_bytes = "all"']
)
def test_a_table_that_says_something_else_is_named(tmp_path: Path, table: str) -> None:
    write_model(tmp_path, "one", ONE, config=f"{CACHE}{table}\n")
    with serving(tmp_path) as client:
        assert "response_cache" in client.get("/models/one").json()["reason"]


def test_a_cache_without_room_for_an_answer_keeps_none(tmp_path: Path) -> None:
    write_model(tmp_path, "one", ONE, config=f"{CACHE}max_bytes = 1\n")
    with serving(tmp_path) as client:
        assert [cached(client.infer("one", X.tolist())) for _ in range(2)] == ["miss", "miss"]


def test_a_model_that_is_loaded_anew_knows_nothing_of_the_one_before(client: Client, tmp_path: Path) -> None:
    store = tmp_path
    assert [cached(client.infer("one", X.tolist())) for _ in range(2)] == ["miss", "hit"]
    before = client.plane.store.version("one", None).model
    param = store / "one" / "1" / "model.pnnx.param"
    param.write_text(param.read_text().replace("add(@0,1)", "add(@0,2)"))
    assert client.post("/v2/repository/models/one/load").status_code == 200
    answer = client.infer("one", X.tolist())
    assert cached(answer) == "miss" and answer.json()["outputs"]["out0"]["data"] == (X + 2).ravel().tolist()
    assert before is not None and before.response_cache is not None and before.response_cache.entries == 0


def test_an_unloaded_model_gives_its_memory_back(client: Client) -> None:
    for value in range(10):
        client.infer("one", [[value, 0, 0]])
    assert client.plane.memory.kept > 10 * 1024
    assert client.post("/v2/repository/models/one/unload").status_code == 200
    assert client.plane.memory.kept == 0 == client.plane.memory.used


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the items of every run of the network."""
    seen: list[int] = []
    run = Batcher.run

    def counted(batcher: Batcher, tensors: Any, items: int, *more: Any) -> Any:
        seen.append(items)
        return run(batcher, tensors, items, *more)

    monkeypatch.setattr(Batcher, "run", counted)
    return seen


def together(client: Client, values: list[int], leaves: int | None = None) -> list[httpx.Response]:
    """Return the answers to requests that all wait before the first runs; the client of one leaves."""

    async def ask() -> list[httpx.Response]:
        scheduler = client.plane.store.version("one").scheduler
        scheduler.step_times.finish_s.value = 1.0  # or those that wait would be left to the thread that runs
        held, first = await hold(scheduler, Order())
        asked = []
        for value in values:
            body = {"inputs": [[value, value, value]]}
            asked.append(asyncio.create_task(client.http.post("/models/one/infer", json=body)))
            await until(lambda: scheduler.waiting == len(asked))
        if leaves is not None:
            asked[leaves].cancel()
            await asyncio.wait([asked.pop(leaves)])
        held.release.set()
        await first
        return list(await asyncio.gather(*asked))

    return client.run(ask())


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Client]:
    """Serve a model with batching disabled."""
    write_model(tmp_path, "one", ONE, config=f"{CACHE}[batching]\nenabled = false\n")
    with serving(tmp_path) as client:
        yield client


def test_equal_requests_that_wait_are_computed_once_and_one_that_leaves_harms_no_other(
    alone: Client, computed: list[int]
) -> None:
    computed.clear()
    answers = together(alone, [1, 1, 2, 1, 2], leaves=0)
    assert [cached(answer) for answer in answers] == ["miss", "miss", "hit", "hit"] and computed == [1, 1]
    assert [answer.json()["outputs"]["out0"]["data"][0] for answer in answers] == [2, 3, 2, 3]
    assert alone.get("/models/one").json()["versions"][0]["statistics"]["cache"] == {"hits": 2, "misses": 2}


def test_a_run_that_fails_fails_for_one_and_the_next_one_is_run(
    alone: Client, computed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    computed.clear()
    run, failures = Batcher.run, [ZeroDivisionError("secret")]

    def failing(*arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return run(*arguments)

    monkeypatch.setattr(Batcher, "run", failing)
    answers = together(alone, [1, 1, 1])
    assert [answer.status_code for answer in answers] == [500, 200, 200] and computed == [1]


def test_of_equal_requests_in_one_run_one_is_computed(tmp_path: Path, computed: list[int]) -> None:
    write_model(tmp_path, "one", ONE, config=f"{CACHE}[batching]\nenabled = true\nmax_batch_size = 4\n")
    with serving(tmp_path) as client:
        batcher = client.plane.store.version("one").model.batcher  # type: ignore[union-attr]
        batcher._kind, batcher.sizes = (("in0", (3,), np.dtype(np.float32)),), (1, 2, 4)
        batcher.decide(Verdict(enabled=True, reason="it is a test"))
        computed.clear()
        answers = together(client, [1, 2, 1, 1])
        assert [cached(answer) for answer in answers] == ["miss", "miss", "hit", "hit"] and computed == [2]
        assert [answer.json()["outputs"]["out0"]["data"][0] for answer in answers] == [2, 3, 2, 2]


def test_many_requests_at_once_get_each_its_own_answer(client: Client) -> None:
    async def ask(value: int) -> bool:
        answer = await client.http.post("/models/one/infer", json={"inputs": [[value, value, value]]})
        return answer.status_code == 200 and answer.json()["outputs"]["out0"]["data"] == [value + 1] * 3

    async def ask_all() -> list[bool]:
        return await asyncio.gather(*[ask(index % 7) for index in range(60)])

    for _ in range(3):
        assert all(client.run(ask_all()))
    statistics = client.get("/models/one").json()["versions"][0]["statistics"]
    assert sum(statistics["cache"].values()) == statistics["requests"]


def test_bad_requests_are_refused_as_ever_and_not_cached(client: Client) -> None:
    for _ in range(2):
        answer = client.infer("one", [[1, 2]])
        assert answer.status_code == 422 and "x-cache" not in answer.headers
    assert client.get("/models/one").json()["versions"][0]["response_cache"]["entries"] == 0
