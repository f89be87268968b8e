"""Tests of loading and unloading models at run time."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

import engine
from app.errors import ModelNotFoundError
from tests.app.client import Client, serving
from tests.app.http.v2.messages import refused
from tests.app.sample_models import TURNSTILE, elementwise, through, write_model
from tests.engine.pnnx.build import param
from tests.patience import PATIENCE_S, until

SHAPE = "(?,2)f32"


def write(store: Path, name: str, add: int, *, version: int = 1, config: str | None = None) -> Path:
    """Write a model that adds a value, and return its folder."""
    write_model(store, name, elementwise(f"add(@0,{add})", SHAPE), config=config, version=version)
    return store / name


def write_over(store: Path, name: str, add: int, *, version: int = 1) -> None:
    (store / name / str(version) / "model.pnnx.param").write_bytes(param(elementwise(f"add(@0,{add})", SHAPE)))


def options(**more: Any) -> dict[str, Any]:
    return {"reload_interval_s": 0, "backend": "reference", "cache": False, **more}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write(tmp_path, "first", 1)
    write(tmp_path, "second", 2)
    return tmp_path


@pytest.fixture
def client(store: Path) -> Iterator[Client]:
    with serving(store, **options()) as client:
        yield client


def call(client: Client, verb: str, name: str = "first", **parameters: object) -> httpx.Response:
    body = {"parameters": parameters} if parameters else None
    return client.post(f"/v2/repository/models/{name}/{verb}", json=body)


def load(client: Client, name: str = "first", **parameters: object) -> None:
    answer = call(client, "load", name, **parameters)
    assert (answer.status_code, answer.content) == (200, b""), answer.text


def unload(client: Client, name: str = "first") -> None:
    answer = call(client, "unload", name, unload_dependents=False)
    assert (answer.status_code, answer.content) == (200, b""), answer.text


def answer(client: Client, name: str = "first", version: int | None = None) -> float | int:
    """Return the result for zeros, or the status if the model does not answer."""
    response = client.infer(name, [[0, 0]], **({} if version is None else {"version": version}))
    return response.json()["outputs"]["out0"]["data"][0] if response.status_code == 200 else response.status_code


def index(client: Client, name: str = "first") -> list[tuple[str, str, str]]:
    rows = client.post("/v2/repository/index").json()
    return [(row["version"], row["state"], row["reason"]) for row in rows if row["name"] == name]


def look(client: Client, times: int = 3) -> None:
    for _ in range(times):
        client.plane.watcher.look()
        client.plane.store._loaders.wait()


def test_a_model_that_is_unloaded_is_served_no_more_until_it_is_loaded_again(client: Client) -> None:
    unload(client)
    assert (answer(client), answer(client, "second")) == (404, 2)
    assert client.get("/v2/models/first/ready").status_code == 404
    assert client.get("/models/first").json()["state"] == "unloaded"
    assert index(client) == [("1", "UNAVAILABLE", "unloaded")]
    assert [row["name"] for row in client.post("/v2/repository/index", json={"ready": True}).json()] == ["second"]
    assert client.get("/health/ready").status_code == 200  # an unloaded model does not count
    unload(client)
    load(client)
    assert answer(client) == 1 and index(client) == [("1", "READY", "")]


def test_a_model_that_was_unloaded_stays_away_until_its_files_change(store: Path, client: Client) -> None:
    unload(client)
    look(client)
    assert answer(client) == 404
    write_over(store, "first", 5)
    look(client)
    assert answer(client) == 5


def test_a_model_that_is_unloaded_and_deleted_is_forgotten(store: Path, client: Client) -> None:
    unload(client)
    shutil.rmtree(store / "first")
    look(client)
    assert index(client) == []


def test_loading_takes_what_lies_there_now_and_new_versions_with_it(store: Path, client: Client) -> None:
    write(store, "third", 3)
    load(client, "third")
    assert answer(client, "third") == 3
    write_over(store, "first", 7)
    load(client)
    assert answer(client) == 7
    write_model(store, "first", elementwise("add(@0,8)", SHAPE), version=2)
    load(client)
    assert (answer(client), answer(client, version=1)) == (8, 404)
    look(client)
    assert (answer(client), index(client)) == (8, [("2", "READY", "")])


def test_statistics_outlive_a_reload_of_the_same_version(client: Client) -> None:
    answer(client)
    load(client)
    answer(client)
    assert client.get("/v2/models/first/stats").json()["model_stats"][0]["execution_count"] == 2


@pytest.mark.parametrize("damage", ["param", "config", "version"])
def test_a_version_that_cannot_be_served_replaces_none_and_its_reason_is_reported(
    store: Path, client: Client, damage: str
) -> None:
    if damage == "param":
        (store / "first" / "1" / "model.pnnx.param").write_text("no graph")
    elif damage == "config":
        (store / "first" / "config.toml").write_text("tusk = 1")
    else:
        (store / "first" / "2").mkdir()
    said = refused(call(client, "load"), 400)
    assert said.startswith("failed to load 'first': ") and str(store) not in said
    assert answer(client) == 1
    ((_, state, reason),) = index(client)
    assert state == "READY" and "not served" in reason
    shutil.rmtree(store / "first")
    write(store, "first", 4)
    load(client)
    assert answer(client) == 4 and index(client) == [("1", "READY", "")]


def test_a_model_that_never_served_and_cannot_says_so_in_the_index(store: Path, client: Client) -> None:
    folder = write(store, "third", 3, config="no toml")
    assert "config.toml" in refused(call(client, "load", "third"), 400)
    ((version, state, reason),) = index(client, "third")
    assert (version, state) == ("", "UNAVAILABLE") and "config.toml" in reason
    (folder / "config.toml").unlink()
    (folder / "1" / "model.pnnx.param").write_text("no graph")
    refused(call(client, "load", "third"), 400)
    assert index(client, "third")[0][1] == "UNAVAILABLE"
    assert client.get("/health/ready").status_code == 200  # it came late
    write_over(store, "third", 3)
    load(client, "third")
    assert answer(client, "third") == 3


def test_a_config_that_is_sent_holds_in_place_of_the_file_until_the_model_is_loaded_again(
    store: Path, client: Client
) -> None:
    write_model(store, "first", elementwise("add(@0,8)", SHAPE), version=2)
    load(client, config=json.dumps({"versions": "all", "labels": ["a", "b"]}))
    assert (answer(client, version=1), answer(client, version=2)) == (1, 8)
    assert client.get("/models/first").json()["labels"] == ["a", "b"]
    look(client)
    assert answer(client, version=1) == 1
    load(client)
    assert answer(client, version=1) == 404 and client.get("/models/first").json()["labels"] is None


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"config": "{"}, "not JSON"),
        ({"config": "[1]"}, "config: "),
        ({"config": '{"max_batch_size": 4}'}, "max_batch_size"),
        ({"config": '{"labels": "../second/config.toml"}'}, "labels"),
        ({"config": '{"threads": 0}'}, "threads"),
        ({"config": "[" * 100_000}, "config"),
        ({"config": {"threads": 1}}, "as text"),
        ({"config": "{}", "file:1/model.pnnx.bin": "YWJj"}, "found a file in the request"),
        ({"confg": "{}"}, "unknown parameter"),
    ],
)
def test_parameters_of_load_that_do_not_fit_change_nothing(
    client: Client, parameters: dict[str, object], said: str
) -> None:
    assert said in refused(call(client, "load", **parameters))
    assert answer(client) == 1


@pytest.mark.parametrize("parameters", [{"unload_dependents": 1}, {"config": "{}"}])
def test_parameters_of_unload_that_do_not_fit_change_nothing(client: Client, parameters: dict[str, object]) -> None:
    refused(call(client, "unload", **parameters))
    assert answer(client) == 1


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"parameters": []}', b"\xff"])
@pytest.mark.parametrize("verb", ["load", "unload"])
def test_bodies_that_are_none_change_nothing(client: Client, verb: str, body: bytes) -> None:
    refused(client.post(f"/v2/repository/models/first/{verb}", content=body))
    assert answer(client) == 1


NAMES = ["..", "%2e%2e", "..%2Ffirst", "%00", "first%00", "a" * 6000, "first%0A", ".first", "FIRST", "fi%20rst", "*",
         "first.pnnx.param", "%F0%9F%92%A5"]  # fmt: skip


@pytest.mark.parametrize("verb", ["load", "unload"])
@pytest.mark.parametrize("name", NAMES)
def test_names_that_are_none_are_not_found(client: Client, verb: str, name: str) -> None:
    assert len(refused(call(client, verb, name), 404)) < 1000
    assert answer(client) == 1


@pytest.mark.parametrize("name", ["", "\0", "a\0b", "../first", "first/../first", "a" * 100_000, "x\ud800", "\n"])
def test_names_that_no_path_can_carry_are_not_found_either(client: Client, name: str) -> None:
    for change in (client.plane.control.load, client.plane.control.unload):
        with pytest.raises(ModelNotFoundError) as caught:
            client.run(change(name))
        assert len(caught.value.message) < 1000 and caught.value.message.isprintable()
    assert answer(client) == 1


def test_an_unload_waits_for_the_requests_that_run_and_refuses_others(store: Path) -> None:
    write_model(store, "slow", through("test.Wait", SHAPE))
    with serving(store, **options(warmup=False)) as client:

        async def both() -> tuple[int, str, int, int]:
            running = asyncio.create_task(client.http.post("/models/slow/infer", json={"inputs": [[1, 2]]}))
            await asyncio.to_thread(TURNSTILE.wait_until_entered)
            unloading = asyncio.create_task(client.http.post("/v2/repository/models/slow/unload"))
            while client.plane.store.entry("slow").unloaded is None:
                await asyncio.sleep(0.01)
            rows = (await client.http.post("/v2/repository/index")).json()
            late = await client.http.post("/models/slow/infer", json={"inputs": [[1, 2]]})
            assert not unloading.done()
            TURNSTILE.let_through()
            state = next(row["state"] for row in rows if row["name"] == "slow")
            return (await running).status_code, state, late.status_code, (await unloading).status_code

        assert client.run(both()) == (200, "UNLOADING", 404, 200)
        assert index(client, "slow") == [("1", "UNAVAILABLE", "unloaded")]


def test_a_model_is_reloaded_while_its_queue_is_full(store: Path) -> None:
    write_model(store, "slow", through("test.Wait", SHAPE))
    with serving(store, **options(warmup=False, max_in_flight=1, max_queue=1)) as client:

        async def many() -> list[int]:
            ask = lambda: asyncio.create_task(client.http.post("/models/slow/infer", json={"inputs": [[1, 2]]}))  # noqa: E731
            old = [ask()]
            await asyncio.to_thread(TURNSTILE.wait_until_entered)
            old.append(ask())
            while not client.plane.store.version("slow").scheduler.queued:
                await asyncio.sleep(0.01)
            assert (await client.http.post("/models/slow/infer", json={"inputs": [[1, 2]]})).status_code == 429
            write_over(store, "slow", 7)
            assert (await client.http.post("/v2/repository/models/slow/load")).status_code == 200
            TURNSTILE.let_through(2)
            return [(await each).status_code for each in old]

        assert client.run(many()) == [200, 200]
        TURNSTILE.entered.acquire(timeout=1)  # the second of them
        assert answer(client, "slow") == 7


def test_loads_of_a_model_at_once_are_made_one_after_the_other(client: Client) -> None:
    async def many() -> list[int]:
        asked = [client.http.post("/v2/repository/models/first/load") for _ in range(5)]
        return [each.status_code for each in await asyncio.gather(*asked)]

    assert set(client.run(many())) == {200}
    assert answer(client) == 1


def test_loads_and_unloads_at_once_come_to_an_end_and_the_last_one_holds(client: Client) -> None:
    async def many() -> list[int]:
        verbs = ["load", "unload"] * 5
        asked = [client.http.post(f"/v2/repository/models/first/{verb}") for verb in verbs]
        return [each.status_code for each in await asyncio.gather(*asked)]

    assert set(client.run(many())) == {200}
    load(client)
    assert answer(client) == 1


def test_a_load_goes_on_when_its_client_goes_away(store: Path, client: Client) -> None:
    write_over(store, "first", 7)

    async def impatient() -> None:
        asked = asyncio.create_task(client.http.post("/v2/repository/models/first/load"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        asked.cancel()
        while client.plane.store.version("first").model is None or client.plane.control._tasks:
            await asyncio.sleep(0.01)

    client.run(impatient())
    load(client)
    assert answer(client) == 7


GATE, ENTERED = threading.Event(), threading.Event()


@engine.register("test.Gate")
class Gate(engine.Layer):
    """Layer that returns its input once the gate is open, and from then on."""

    def infer(self, input: engine.TensorSpec) -> engine.TensorSpec:
        return input

    def forward(self, input: NDArray[np.float32]) -> NDArray[np.float32]:
        ENTERED.set()
        assert GATE.wait(PATIENCE_S)
        return input


def test_a_folder_that_is_deleted_while_it_is_loaded_takes_nothing_down(store: Path) -> None:
    write_model(store, "slow", through("test.Gate", SHAPE.replace("?", "1")))
    GATE.clear()
    with serving(store, **options(model_control="explicit", load_model=("first",))) as client:

        async def both() -> int:
            loading = asyncio.create_task(client.http.post("/v2/repository/models/slow/load"))
            assert await asyncio.to_thread(ENTERED.wait, PATIENCE_S)
            rows = (await client.http.post("/v2/repository/index")).json()
            assert [row["state"] for row in rows if row["name"] == "slow"] == ["LOADING"]
            shutil.rmtree(store / "slow")
            GATE.set()
            return (await loading).status_code

        assert client.run(both()) == 200  # it was read before, and serves from memory
        assert "not in the store" in refused(call(client, "load", "slow"), 404)
        unload(client, "slow")
        assert index(client, "slow") == [] and answer(client) == 1


def test_setting_model_control_explicit_loads_what_setting_load_model_names_and_what_is_asked_for(store: Path) -> None:
    with serving(store, **options(model_control="explicit", load_model=("second",))) as client:
        assert (answer(client), answer(client, "second")) == (404, 2)
        assert index(client) == [("", "UNAVAILABLE", "not loaded")]
        assert client.get("/health/ready").status_code == 200
        assert (
            client.post("/infer", json={"inputs": [[0, 0]]}).json()["model"] == "second"
        )  # the only one that is loaded
        write(store, "third", 3)
        assert index(client, "third") == [("", "UNAVAILABLE", "not loaded")]
        load(client, "third")
        load(client)
        assert (answer(client), answer(client, "third")) == (1, 3)
    with serving(store, **options(model_control="explicit", load_model=("*",))) as client:
        assert (answer(client), answer(client, "second")) == (1, 2)
    with serving(store, **options(model_control="explicit", load_model=("first", "nope"))) as client:
        assert "nope" in client.get("/health/ready").json()["error"]["message"]
        assert answer(client) == 1
    with serving(store, **options(model_control="explicit")) as client:
        assert client.get("/health/ready").status_code == 200 and answer(client) == 404


def test_setting_model_control_none_loads_all_at_the_start_and_nothing_later(store: Path) -> None:
    with serving(store, **{**options(model_control="none"), "reload_interval_s": 0.01}) as client:
        assert (answer(client), answer(client, "second")) == (1, 2)
        for verb in ("load", "unload"):
            assert "model_control" in refused(call(client, verb), 503)
        assert answer(client) == 1


def test_a_server_looks_by_itself_and_leaves_alone_what_was_unloaded(store: Path) -> None:
    with serving(store, **{**options(), "reload_interval_s": 0.01}) as client:
        unload(client)
        write(store, "third", 3)
        until(lambda: answer(client, "third") == 3)
        assert answer(client) == 404
        write_over(store, "first", 9)
        until(lambda: answer(client) == 9)
