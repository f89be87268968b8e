"""Files that are replaced while they are served: the new ones serve when they can, and the old ones until then."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from tests.app.client import Client, serving
from tests.app.sample_models import TURNSTILE, elementwise, through, write_model
from tests.engine.pnnx.build import members, pair, param
from tests.held import assert_no_more, held
from tests.patience import PATIENCE_S, until

SHAPE = "(?,2)f32"
LINES = [
    f"pnnx.Input in 0 1 0 #0={SHAPE}",
    "nn.Linear l 1 1 0 1 bias=False in_features=2 out_features=2 @weight=(2,2)f32",
    "pnnx.Output out 1 0 1",
]


def weights(value: int) -> bytes:
    return members({"l.weight": np.diag([value, value]).astype(np.float32).tobytes()})


def write(store: Path, value: int) -> Path:
    """A model that multiplies, its files written in place; its folder."""
    folder = store / "m" / "1"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.pnnx.param").write_bytes(param(LINES))
    (folder / "model.pnnx.bin").write_bytes(weights(value))
    return folder


def notice(client: Client) -> None:
    """Look until what is there has come to rest, was loaded, and serves or does not."""
    for _ in range(3):
        client.plane.watcher.look()
        client.plane.store._loaders.wait()


def answer(client: Client) -> float:
    response = client.infer("m", [[1, 1]])
    assert response.status_code == 200, response.text
    return float(response.json()["outputs"]["out0"]["data"][0])


def row(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/models/m").json()
    return found


def unwatched(store: Path) -> Any:
    """A server that looks when it is told to."""
    return serving(store, reload_interval_s=0)


def replace(folder: Path, content: bytes) -> None:
    (folder / "new").write_bytes(content)
    os.replace(folder / "new", folder / "model.pnnx.bin")


def linked(folder: Path, content: bytes) -> None:
    (folder.parent / "elsewhere").write_bytes(content)
    (folder / "model.pnnx.bin").unlink()
    (folder / "model.pnnx.bin").symlink_to(folder.parent / "elsewhere")


def with_its_old_time(folder: Path, content: bytes) -> None:
    status = (folder / "model.pnnx.bin").stat()
    (folder / "model.pnnx.bin").write_bytes(content)
    os.utime(folder / "model.pnnx.bin", ns=(status.st_atime_ns, status.st_mtime_ns))


WAYS: dict[str, Callable[[Path, bytes], object]] = {
    "written over": lambda folder, content: (folder / "model.pnnx.bin").write_bytes(content),
    "written over and dated back": with_its_old_time,
    "replaced": replace,
    "replaced by a link": linked,
}


@pytest.mark.parametrize("way", WAYS)
def test_files_that_were_replaced_are_served_once_they_are_at_rest(way: str, tmp_path: Path) -> None:
    folder = write(tmp_path, 2)
    with unwatched(tmp_path) as client:
        assert answer(client) == 2
        before = row(client)["versions"][0]["statistics"]["requests"]
        WAYS[way](folder, weights(3))
        assert answer(client) == 2
        client.plane.watcher.look()
        client.plane.store._loaders.wait()
        assert answer(client) == 2
        notice(client)
        assert answer(client) == 3
        assert row(client)["versions"][0]["statistics"]["requests"] == before + 3
        assert row(client)["reason"] is None


def test_what_keeps_changing_is_not_loaded(tmp_path: Path) -> None:
    folder = write(tmp_path, 2)
    with unwatched(tmp_path) as client:
        for step in range(1, 6):
            (folder / "model.pnnx.bin").write_bytes(weights(3)[: 40 * step])
            client.plane.watcher.look()
            client.plane.store._loaders.wait()
        assert (answer(client), row(client)["reason"]) == (2, None)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "half a file": lambda folder: (folder / "model.pnnx.bin").write_bytes(weights(3)[:100]),
    "nothing": lambda folder: (folder / "model.pnnx.bin").write_bytes(b""),
    "half old, half new": lambda folder: (folder / "model.pnnx.bin").write_bytes(
        weights(2).replace(np.float32(2).tobytes(), np.float32(3).tobytes(), 1)
    ),
    "no weights": lambda folder: (folder / "model.pnnx.bin").unlink(),
    "no text": lambda folder: (folder / "model.pnnx.param").unlink(),
    "other text": lambda folder: (folder / "model.pnnx.param").write_bytes(param([*LINES[:1], *LINES[2:]])),
    "no folder": lambda folder: shutil.rmtree(folder.parent),
    "pipe": lambda folder: ((folder / "model.pnnx.bin").unlink(), os.mkfifo(folder / "model.pnnx.bin")),
    "config": lambda folder: (folder.parent / "config.toml").write_text("task = 1"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_unservable_files_replace_no_version_and_their_reason_is_reported(damage: str, tmp_path: Path) -> None:
    folder = write(tmp_path, 2)
    with unwatched(tmp_path) as client:
        DAMAGE[damage](folder)
        notice(client)
        assert answer(client) == 2
        found = row(client)
        assert found["state"] == found["versions"][0]["state"] == "ready"
        assert "the files have changed and are not served: " in found["reason"]
        assert str(tmp_path) not in found["reason"]
        assert client.get("/health/ready").json() == {"ready": True}
        shutil.rmtree(folder.parent, ignore_errors=True)
        write(tmp_path, 4)
        notice(client)
        assert (answer(client), row(client)["reason"]) == (4, None)


def test_the_text_of_a_model_is_not_waited_for(tmp_path: Path) -> None:
    folder = write(tmp_path, 2)
    with unwatched(tmp_path) as client:
        (folder / "model.pnnx.param").unlink()
        os.mkfifo(folder / "model.pnnx.param")
        response = client.get("/models/m/graph?format=param")
        assert response.status_code == 503
        assert response.json()["error"]["message"] == "model 'm': model.pnnx.param: not a regular file"
        assert (answer(client), client.get("/models/m/graph").status_code) == (2, 200)


def test_a_model_that_failed_serves_when_its_files_are_mended(tmp_path: Path) -> None:
    folder = write(tmp_path, 2)
    (folder / "model.pnnx.bin").write_bytes(b"")
    with unwatched(tmp_path) as client:
        assert client.get("/health/ready").status_code == 503
        (folder / "model.pnnx.bin").write_bytes(b"x")
        notice(client)
        assert "found 1 bytes" in row(client)["reason"]
        write(tmp_path, 3)
        notice(client)
        assert answer(client) == 3
        assert client.get("/health/ready").json() == {"ready": True}


def test_the_config_and_the_labels_are_looked_at_too(tmp_path: Path) -> None:
    folder = write(tmp_path, 2).parent
    with unwatched(tmp_path) as client:
        (folder / "labels.txt").write_text("cat\ndog\n")
        (folder / "config.toml").write_text('task = "classification"\nlabels = "labels.txt"\n')
        notice(client)
        assert row(client)["labels"] == ["cat", "dog"]
        (folder / "labels.txt").write_text("one\ntwo\n")
        notice(client)
        assert row(client)["labels"] == ["one", "two"]


def test_a_pair_without_a_folder_is_looked_at_too(tmp_path: Path) -> None:
    pair(tmp_path, elementwise("add(@0,1)", SHAPE), {})
    with unwatched(tmp_path) as client:
        write_over = param(elementwise("add(@0,5)", SHAPE))
        (tmp_path / "model.pnnx.param").write_bytes(write_over)
        notice(client)
        assert client.infer("model", [[1, 1]]).json()["outputs"]["out0"]["data"] == [6, 6]


def test_a_bundle_is_looked_at_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.compiler.bundling.writing.is_unchanged", lambda: True)
    store = tmp_path / "store"
    store.mkdir()

    def put(value: int) -> None:
        graph = engine.load(write(tmp_path / "pairs", value) / "model.pnnx.param")
        session = engine.Session(graph, cache=None, threads=1)
        session.save_bundle(store / "m", [[engine.TensorSpec((1, 2), np.dtype(np.float32))]], replace=True)

    put(2)
    with unwatched(store) as client:
        assert answer(client) == 2
        put(3)
        notice(client)
        assert (answer(client), row(client)["reason"]) == (3, None)
        (program,) = (store / "m").glob("*.blueprint")
        program.write_bytes(program.read_bytes()[:-1])
        os.utime(store / "m" / "manifest.json")
        notice(client)
        assert answer(client) == 3
        assert f"{program.name}: the file is truncated" in row(client)["reason"]


def test_a_request_ends_with_the_model_it_began_with(tmp_path: Path) -> None:
    write_model(tmp_path, "m", through("test.Wait", SHAPE))
    with serving(tmp_path, reload_interval_s=0, warmup=False, backend="reference", cache=False) as client:
        answers: list[Any] = []

        async def both() -> None:
            running = asyncio.create_task(client.http.post("/models/m/infer", json={"inputs": [[1, 2]]}))
            await asyncio.to_thread(TURNSTILE.wait_until_entered)
            (tmp_path / "m" / "1" / "model.pnnx.param").write_bytes(param(elementwise("add(@0,7)", SHAPE)))
            await asyncio.to_thread(notice, client)
            TURNSTILE.let_through()
            answers.append((await running).json())

        client.run(both())
        assert answers[0]["outputs"]["out0"]["data"] == [1, 2]
        assert client.infer("m", [[1, 2]]).json()["outputs"]["out0"]["data"] == [8, 9]


def test_the_model_that_was_replaced_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = write(tmp_path, 2)
    turns = range(10, 18)
    with unwatched(tmp_path) as client:
        assert answer(client) == 2
        first = weakref.ref(client.plane.store.version("m").model)
        for value in (3, *turns):
            (folder / "model.pnnx.bin").write_bytes(weights(value))
            notice(client)
            assert answer(client) == value
            if value == 3:
                before = held()
        assert_no_more(before, turns=len(turns))
        until(lambda: held() and first() is None)  # counting collects garbage


def test_a_server_looks_by_itself(tmp_path: Path) -> None:
    write(tmp_path, 2)
    with serving(tmp_path, reload_interval_s=0.01) as client:
        write(tmp_path, 3)
        end = time.monotonic() + PATIENCE_S
        while answer(client) != 3:
            assert time.monotonic() < end, "the change was not noticed"
    assert not [each for each in threading.enumerate() if each.name == "watch" and not each.daemon]


def test_answers_are_right_after_a_roll_back_and_a_restart(tmp_path: Path) -> None:
    """Code that was compiled from other weights in the meantime is not used for these."""
    folder = write(tmp_path, 2)
    options: dict[str, Any] = {"cache": True, "cache_dir": tmp_path / ".cache", "reload_interval_s": 0}
    with serving(tmp_path, warmup=False, **options) as client:
        (folder / "model.pnnx.bin").write_bytes(weights(3))
        assert answer(client) == 2  # compiled now, after the file has changed
        notice(client)
        assert answer(client) == 3
        (folder / "model.pnnx.bin").write_bytes(weights(2))
    for value in (2, 3, 2):
        (folder / "model.pnnx.bin").write_bytes(weights(value))
        with serving(tmp_path, **options) as client:
            assert answer(client) == value
