"""Batches of a model: the same answers as one by one, in sizes that there is code for, and only where that is right."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import engine
from app.models.batcher import Batcher, BatchSizeTuning, Verdict, tune
from app.scheduling.config import BatchingConfig
from tests.app.client import Client, serving
from tests.app.sample_models import write_model
from tests.app.scheduling.tasks import Order, Task, soon, until
from tests.engine.pnnx.build import pair
from tests.patience import PATIENCE_S

RANDOM = np.random.default_rng(7)
WEIGHTS = {"op.bias": RANDOM.standard_normal(5), "op.weight": RANDOM.standard_normal((5, 3))}
LINEAR = [
    "pnnx.Input in 0 1 0 #0=(1,3)f32",
    "nn.Linear op 1 1 0 1 bias=True in_features=3 out_features=5 @bias=(5)f32 @weight=(5,3)f32 #0=(1,3)f32 #1=(1,5)f32",
    "F.softmax soft 1 1 1 2 dim=1 #1=(1,5)f32 #2=(1,5)f32",
    "pnnx.Output out 1 0 2 #2=(1,5)f32",
]
# Adds to each item the sum of all of them.
MIXING = [
    "pnnx.Input in 0 1 0 #0=(?,3)f32",
    "torch.sum sum 1 1 0 1 dim=(0) keepdim=True #0=(?,3)f32 #1=(1,3)f32",
    "pnnx.Expression add 2 1 0 1 2 expr=add(@0,@1) #0=(?,3)f32 #1=(1,3)f32 #2=(?,3)f32",
    "pnnx.Output out 1 0 2 #2=(?,3)f32",
]


def linear(folder: Path) -> engine.RuntimeGraph:
    return engine.load(
        pair(folder, LINEAR, {name: each.astype(np.float32).tobytes() for name, each in WEIGHTS.items()})
    )


def batcher(graph: engine.RuntimeGraph, cache: Path | None = None, **config: Any) -> Batcher:
    session = engine.Session(graph, threads=1, cache=cache)
    shape = [dim or 1 for dim in graph.inputs[0].spec.shape]  # type: ignore[union-attr]
    example = {"in": np.zeros(shape, np.float32)}
    session.run(example)
    made = Batcher(session, BatchingConfig(**config))
    assert made.learn(example)
    return made


def finish(made: Batcher) -> Batcher:
    """Finish its tuning in this thread."""
    tuning = BatchSizeTuning(made)
    while tuning(lambda *_: None):
        pass
    return made


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> dict[int, float]:
    """Return the measured time of a run by number of items."""
    found: dict[int, float] = {}
    monkeypatch.setattr(BatchSizeTuning, "_run_s", lambda self, inputs: found[len(inputs["in"])])
    return found


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Batcher:
    return finish(batcher(linear(tmp_path_factory.mktemp("linear")), enabled=True))


@given(st.lists(st.integers(1, 11), min_size=1, max_size=6), st.integers(0, 2**31))
def test_requests_that_share_a_run_get_what_they_get_alone(ready: Batcher, items: list[int], seed: int) -> None:
    random = np.random.default_rng(seed)
    requests = [{"in": random.standard_normal((count, 3)).astype(np.float32)} for count in items]
    together = ready.run_together(requests, items)
    for request, found in zip(requests, together, strict=True):
        alone = np.concatenate([ready.session.run([row[None]])[0] for row in request["in"]])
        assert found["out0"].shape == alone.shape
        np.testing.assert_allclose(found["out0"], alone, rtol=1e-5, atol=1e-6)


def test_answers_of_a_shared_run_are_views_of_it(ready: Batcher) -> None:
    first, second = ready.run_together([{"in": np.ones((2, 3), np.float32)}] * 2, [2, 2])
    assert first["out0"].base is not None and first["out0"].base is second["out0"].base


def test_a_batch_that_there_is_no_code_for_is_run_in_parts_there_is_and_nothing_is_compiled_for_it(
    ready: Batcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    run = ready.session.run
    monkeypatch.setattr(
        ready.session, "run", lambda inputs, **more: sizes.append(len(inputs["in"])) or run(inputs, **more)
    )
    x = RANDOM.standard_normal((7, 3)).astype(np.float32)
    found = ready.run({"in": x}, 7)
    assert sizes == [4, 2, 1] and found["out0"].shape == (7, 5)
    assert not ready.session.is_compiled({"in": x})


def test_a_size_that_comes_again_in_many_parts_gets_code_of_its_own(tmp_path: Path) -> None:
    made = finish(batcher(linear(tmp_path), enabled=False))
    made.offer(1)
    x = {"in": np.ones((50, 3), np.float32)}
    end = time.monotonic() + PATIENCE_S
    while not made.session.is_compiled(x):
        assert made.run(x, 50)["out0"].shape == (50, 5) and time.monotonic() < end


@pytest.mark.parametrize(
    ("tensors", "items"),
    [({"in": np.zeros((2, 4))}, 2), ({"in": np.zeros((2, 3))}, 2), ({"x": np.zeros((2, 3), np.float32)}, 2), ({}, 0)],
)
def test_what_is_of_another_kind_shares_no_run(ready: Batcher, tensors: dict[str, NDArray[Any]], items: int) -> None:
    assert not ready.is_known(tensors, items)


def test_items_of_a_request_are_what_it_counts_for(ready: Batcher) -> None:
    run_spec = ready.run_spec({"in": np.zeros((3, 3), np.float32)}, 3)
    assert run_spec.items == 3 and run_spec.group is not None and run_spec.batches is not None
    assert run_spec.batches.sizes == (1, 2, 4, 8) and not run_spec.is_slow


def test_sizes_are_made_as_long_as_an_item_becomes_cheaper_and_no_longer(
    tmp_path: Path, times: dict[int, float]
) -> None:
    times.update({1: 1.0, 2: 1.2, 4: 2.0, 8: 3.9})
    made = finish(batcher(linear(tmp_path)))
    assert made.sizes == (1, 2, 4) and made.verdict.enabled
    assert made.verdict.reason == "an item takes 0.50 of its single-run time in a batch of 4"
    assert made.verdict.latency_s == times
    assert not made.session.is_compiled({"in": np.zeros((8, 3), np.float32)})


def test_where_a_batch_is_no_faster_requests_share_no_run_and_batches_are_run_one_by_one(
    tmp_path: Path, times: dict[int, float]
) -> None:
    times.update({1: 1.0, 2: 1.9})
    made = finish(batcher(linear(tmp_path)))
    assert made.sizes == (1,) and not made.verdict.enabled and made.verdict.is_final
    assert made.verdict.reason == "an item takes 0.95 of its time in a batch of 2, expected at most 0.9"
    run_spec = made.run_spec({"in": np.zeros((3, 3), np.float32)}, 3)
    assert run_spec.group is None and not run_spec.is_slow


@pytest.mark.parametrize("enabled", [True, "auto"])
def test_a_model_whose_items_see_each_other_is_left_alone(
    tmp_path: Path, enabled: bool | str, caplog: pytest.LogCaptureFixture
) -> None:
    session = engine.Session(engine.load(pair(tmp_path, MIXING, {})), threads=1, cache=None)
    session.run({"in": np.zeros((1, 3), np.float32)})
    made = Batcher(session, BatchingConfig(enabled=enabled))  # type: ignore[arg-type]
    assert not made.learn({"in": np.zeros((1, 3), np.float32)})
    reason = "items are not proved independent: sum (torch.sum) reduces the batch axis"
    assert made.verdict == Verdict(enabled=False, reason=reason) and made.sizes == ()
    warning = f"'model': batching.enabled is true, but no run is shared: {reason}"
    assert caplog.messages == ([] if enabled == "auto" else [warning])
    x = np.ones((3, 3), np.float32)
    np.testing.assert_array_equal(made.run({"in": x}, 3)["out0"], 4 * x)


@pytest.mark.parametrize("enabled", ["true", '"auto"'])
def test_requests_for_a_model_whose_items_see_each_other_are_never_merged(tmp_path: Path, enabled: str) -> None:
    write_model(tmp_path, "mixing", MIXING, config=f"[batching]\nenabled = {enabled}\nmax_queue_delay_us = 1000\n")
    rows = RANDOM.standard_normal((5, 3)).astype(np.float32)
    with serving(tmp_path, threads=1) as client:
        for row, answer in zip(rows, held(client, "mixing", [[row.tolist()] for row in rows]), strict=True):
            np.testing.assert_allclose(answer.json()["outputs"]["out0"]["data"], 2 * row, rtol=1e-6)
        stats = client.get("/v2/models/mixing/stats").json()["model_stats"][0]
        told = client.get("/models/mixing").json()["batching"]
    assert (stats["inference_count"], stats["execution_count"]) == (5, 5)
    assert not told["enabled"] and "sum (torch.sum) reduces the batch axis" in told["reason"]


@pytest.mark.parametrize(
    ("config", "run_s", "reason"),
    [
        ({"enabled": False}, 0.1, "batching.enabled is false"),
        ({"max_batch_size": 1}, 0.1, "at most 1 item may run at once"),
        ({}, 1.5, "a run takes 1.5 s; tuning is limited to 0.25 s because other requests would wait"),
    ],
)
def test_what_need_not_be_tried_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any], run_s: float, reason: str
) -> None:
    monkeypatch.setattr("app.models.batcher.engine.in_background", lambda _: pytest.fail("it was tried"))
    made = batcher(linear(tmp_path), **config)
    tune(made, run_s)
    assert (made.verdict.enabled, made.verdict.reason) == (False, reason)
    assert made.sizes == (1,)


@pytest.mark.parametrize(
    ("config", "sizes"),
    [
        ({}, (1, 2, 4, 8)),
        ({"max_batch_size": 6}, (1, 2, 4, 6)),
        ({"max_batch_size": 1}, (1,)),
        ({"allowed_batch_sizes": (3, 16)}, (1, 3, 16)),
        ({"max_batch_size": 1024}, (*(1 << power for power in range(11)),)),
    ],
)
def test_sizes_follow_from_the_config(config: dict[str, Any], sizes: tuple[int, ...]) -> None:
    assert BatchingConfig(**config).sizes == sizes


def test_trials_begin_with_the_first_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = batcher(linear(tmp_path), enabled=True)
    began: list[BatchSizeTuning] = []
    monkeypatch.setattr("engine.in_background", lambda tuning: began.append(tuning) or True)

    tune(made, 0.001)
    assert not began and not made.verdict.is_final
    made.use()
    made.use()
    (tuning,) = began
    while tuning(lambda *_: None):
        pass
    assert made.sizes == (1, 2, 4, 8) and made.verdict.enabled and made.verdict.is_final
    assert all(made.session.is_compiled({"in": np.zeros((size, 3), np.float32)}) for size in made.sizes)


def test_a_model_that_had_a_request_before_it_is_decided_is_tried_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = batcher(linear(tmp_path))
    began: list[BatchSizeTuning] = []
    monkeypatch.setattr("engine.in_background", lambda tuning: began.append(tuning) or True)
    made.use()
    tune(made, 0.001)
    assert len(began) == 1


def test_idle_models_are_not_tried(tmp_path: Path) -> None:
    for name in ("used", "idle"):
        write_model(tmp_path, name, LINEAR, {key: each.astype(np.float32) for key, each in WEIGHTS.items()})
    with serving(tmp_path) as client:
        batchers = {name: client.plane.store.version(name).model.batcher for name in ("used", "idle")}  # type: ignore[union-attr]
        assert client.infer("used", [[1, 2, 3]]).status_code == 200
        client.run(until(lambda: batchers["used"].verdict.is_final))
        assert not batchers["idle"].verdict.is_final and batchers["idle"].sizes == (1,)


def write_linear(store: Path, config: str) -> None:
    write_model(store, "linear", LINEAR, {name: each.astype(np.float32) for name, each in WEIGHTS.items()}, config)


async def settled(client: Client, name: str) -> Batcher:
    model = client.plane.store.version(name).model
    assert model is not None
    model.batcher.use()  # trials begin with the first request
    await until(lambda: model.batcher.verdict.is_final)
    return model.batcher


def held(client: Client, name: str, bodies: list[Any]) -> list[Any]:
    """Return the responses to requests that arrive while a run is held."""

    async def test() -> list[Any]:
        await settled(client, name)
        scheduler = client.plane.store.version(name).scheduler
        holder = Task("holder", Order(), is_held=True)
        first = asyncio.create_task(scheduler.run(holder, soon()))
        await holder.running()
        asked = [
            asyncio.create_task(client.http.post(f"/models/{name}/infer", json={"inputs": body})) for body in bodies
        ]
        await until(lambda: scheduler.waiting == len(bodies))
        holder.release.set()
        await first
        return [await each for each in asked]

    return client.run(test())


def test_requests_over_http_share_runs_and_the_figures_say_so(tmp_path: Path) -> None:
    write_linear(tmp_path, "[batching]\nenabled = true\n")
    rows = RANDOM.standard_normal((5, 3)).astype(np.float32)

    with serving(tmp_path, threads=1) as client:
        for row, answer in zip(rows, held(client, "linear", [[row.tolist()] for row in rows]), strict=True):
            expected = client.infer("linear", [row.tolist()]).json()["outputs"]["out0"]["data"]
            np.testing.assert_allclose(answer.json()["outputs"]["out0"]["data"], expected, rtol=1e-5)
        told = client.get("/models/linear").json()
        stats = client.get("/v2/models/linear/stats").json()["model_stats"][0]
        config = client.get("/v2/models/linear/config").json()
        page = client.get("/metrics").text
    assert told["batching"]["enabled"] is True and told["batching"]["batch_sizes"] == [1, 2, 4, 8]
    assert told["batching"]["reason"] == "batching.enabled is true" and "1" in told["batching"]["latency_ms"]
    assert told["batching"]["limits"]["few"] == 1
    assert config["dynamic_batching"] == {"preferred_batch_size": [2, 4, 8], "max_queue_delay_microseconds": 0}
    # Five in runs of four and one, then five by themselves.
    assert (stats["inference_count"], stats["execution_count"]) == (10, 7)
    assert [(each["batch_size"], each["compute_infer"]["count"]) for each in stats["batch_stats"]] == [(1, 6), (4, 1)]
    assert 'pnnx_serve_batch_items_count{model="linear",version="1"} 7.0' in page
    assert 'pnnx_serve_batches_total{limit="few",model="linear",version="1"} 1.0' in page


def test_a_request_that_is_refused_while_it_is_prepared_does_not_harm_its_batch(tmp_path: Path) -> None:
    write_linear(tmp_path, "[batching]\nenabled = true\n")
    with serving(tmp_path, threads=1) as client:
        bad = client.infer("linear", [[1, 2]])
        assert bad.status_code == 422
        held(client, "linear", [[[1, 2, 3]], [[4, 5, 6]]])
        assert client.get("/models/linear").json()["versions"][0]["statistics"]["runs"] == 1


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ("max_batch_size = 0", "batching.max_batch_size"),
        ("max_batch_size = 2147483647", "batching.max_batch_size"),
        ("max_queue_delay_us = -1", "batching.max_queue_delay_us"),
        ('enabled = "yes"', "batching.enabled"),
        ("allowed_batch_sizes = []", "batching.allowed_batch_sizes"),
        ("max_batch_size = 2\nallowed_batch_sizes = [4]", "expected at most max_batch_size, 2"),
        ("max_batch = 2", "unknown key"),
    ],
)
def test_a_wrong_table_fails_the_model_with_the_key(tmp_path: Path, config: str, problem: str) -> None:
    write_linear(tmp_path, f"[batching]\n{config}\n")
    with serving(tmp_path) as client:
        assert problem in client.get("/models/linear").json()["reason"]


def test_trials_leave_no_thread_behind(tmp_path: Path) -> None:
    write_linear(tmp_path, "")
    with serving(tmp_path, threads=1) as client:
        client.run(settled(client, "linear"))
        client.run(until(lambda: all(each.name != "compile" for each in threading.enumerate())))
