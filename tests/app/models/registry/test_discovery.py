"""Models and versions that come and go while a server runs."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.app.client import Client, serving
from tests.app.sample_models import TURNSTILE, elementwise, through, write_model
from tests.held import assert_no_more, held

SHAPE = "(?,2)f32"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write(tmp_path, "first", 1)
    return tmp_path


def write(store: Path, name: str, add: int, *, version: int = 1, config: str | None = None) -> None:
    write_model(store, name, elementwise(f"add(@0,{add})", SHAPE), config=config, version=version)


def unwatched(store: Path) -> Any:
    return serving(store, reload_interval_s=0, backend="reference", cache=False)


def look(client: Client, times: int = 3) -> None:
    for _ in range(times):
        client.plane.watcher.look()
        client.plane.store._loaders.wait()


def answer(client: Client, model: str = "first", version: int | None = None) -> float | int:
    """Return the model's result for zeros; the status if it does not answer."""
    response = client.infer(model, [[0, 0]], **({} if version is None else {"version": version}))
    return response.json()["outputs"]["out0"]["data"][0] if response.status_code == 200 else response.status_code


def versions(client: Client, model: str = "first") -> list[int]:
    return [row["version"] for row in client.get(f"/models/{model}").json()["versions"]]


def is_ready(client: Client) -> bool:
    return client.get("/health/ready").status_code == 200


def test_a_model_that_is_dropped_into_the_folder_is_served(store: Path) -> None:
    with unwatched(store) as client:
        look(client)
        assert answer(client, "second") == 404
        write(store, "second", 2)
        client.plane.watcher.look()
        assert answer(client, "second") == 404  # it may still be being copied
        look(client, 2)
        assert (answer(client, "second"), answer(client)) == (2, 1)


def test_a_model_that_is_half_copied_waits_until_it_has_come_to_rest(store: Path) -> None:
    with unwatched(store) as client:
        look(client)
        folder = store / "second" / "1"
        folder.mkdir(parents=True)
        client.plane.watcher.look()
        write_model(store / "elsewhere", "second", elementwise("add(@0,2)", SHAPE))
        shutil.copy(store / "elsewhere" / "second" / "1" / "model.pnnx.param", folder)
        client.plane.watcher.look()
        shutil.copy(store / "elsewhere" / "second" / "1" / "model.pnnx.bin", folder)
        client.plane.watcher.look()
        assert client.get("/models/second").status_code == 404
        shutil.rmtree(store / "elsewhere")
        look(client, 2)
        assert answer(client, "second") == 2 and is_ready(client)


def test_a_model_that_comes_and_cannot_be_served_says_why_and_keeps_the_server_ready(store: Path) -> None:
    with unwatched(store) as client:
        look(client)
        write(store, "second", 2, config="no toml")
        look(client)
        assert answer(client, "second") == 503 and "config.toml" in client.get("/models/second").json()["reason"]
        assert is_ready(client)
        (store / "second" / "config.toml").write_text("")
        look(client)
        assert answer(client, "second") == 2


def test_a_model_that_was_broken_from_the_start_is_served_once_it_is_mended(store: Path) -> None:
    write(store, "second", 2, config="no toml")
    with unwatched(store) as client:
        look(client)
        assert not is_ready(client)
        (store / "second" / "config.toml").write_text("")
        look(client)
        assert answer(client, "second") == 2 and is_ready(client)


def test_a_model_that_is_gone_is_served_no_more_and_comes_back_with_its_files(store: Path) -> None:
    write(store, "second", 2)
    with unwatched(store) as client:
        look(client)
        shutil.move(store / "second", store.parent / "second")
        look(client, 1)
        assert answer(client, "second") == 404 and answer(client) == 1 and is_ready(client)
        shutil.move(store.parent / "second", store / "second")
        look(client)
        assert answer(client, "second") == 2


def test_a_request_that_runs_when_its_model_goes_gets_its_answer(store: Path) -> None:
    write_model(store, "slow", through("test.Wait", SHAPE))
    with serving(store, reload_interval_s=0, backend="reference", cache=False, warmup=False) as client:
        look(client)

        async def both() -> int:
            running = asyncio.create_task(client.http.post("/models/slow/infer", json={"inputs": [[1, 2]]}))
            await asyncio.to_thread(TURNSTILE.wait_until_entered)
            shutil.rmtree(store / "slow")
            await asyncio.to_thread(look, client, 1)
            TURNSTILE.let_through()
            return (await running).status_code

        assert client.run(both()) == 200
        assert answer(client, "slow") == 404


def test_a_newer_version_takes_the_place_of_the_one_that_serves_once_it_has_run(store: Path) -> None:
    with unwatched(store) as client:
        look(client)
        write(store, "first", 2, version=2)
        client.plane.watcher.look()
        assert (answer(client), versions(client)) == (1, [1])
        look(client)
        assert (answer(client), versions(client)) == (2, [2]) and answer(client, version=1) == 404
        shutil.rmtree(store / "first" / "2")
        look(client)
        assert (answer(client), versions(client)) == (1, [1])


def test_a_newer_version_that_cannot_be_served_leaves_the_older_one_in_its_place_and_says_why(store: Path) -> None:
    with unwatched(store) as client:
        look(client)
        write(store, "first", 2, version=2)
        (store / "first" / "2" / "model.pnnx.param").write_text("no graph")
        look(client)
        assert (answer(client), versions(client)) == (1, [1]) and is_ready(client)
        assert "version 2" in client.get("/models/first").json()["reason"]
        shutil.copy(store / "first" / "1" / "model.pnnx.param", store / "first" / "2" / "model.pnnx.param")
        look(client)
        assert versions(client) == [2]


def test_where_all_versions_are_served_one_comes_and_one_goes(tmp_path: Path) -> None:
    write(tmp_path, "first", 1, config='versions = "all"')
    with unwatched(tmp_path) as client:
        look(client)
        write(tmp_path, "first", 2, version=2)
        look(client)
        assert (versions(client), answer(client, version=1), answer(client, version=2)) == ([1, 2], 1, 2)
        shutil.rmtree(tmp_path / "first" / "1")
        look(client)
        assert versions(client) == [2]


def test_a_folder_that_is_suddenly_empty_or_cannot_be_read_says_nothing(store: Path) -> None:
    with unwatched(store) as client:
        look(client)
        store.rename(store.parent / "away")
        look(client)
        assert answer(client) == 1
        store.mkdir()
        look(client)
        assert answer(client) == 1
        store.rmdir()
        (store.parent / "away").rename(store)
        look(client)
        assert answer(client) == 1 and is_ready(client)


def test_models_that_come_and_go_leave_nothing_behind(store: Path) -> None:
    with unwatched(store) as client:
        look(client)
        for index in range(12):
            write(store, "second", index)
            look(client)
            assert answer(client, "second") == index
            shutil.rmtree(store / "second")
            look(client, 2)
            if index == 1:
                before = held()
        assert_no_more(before, turns=10)
