"""Models of a pipeline that are replaced, unloaded and loaded while it is served."""

from __future__ import annotations

import asyncio
import gc
import io
import shutil
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from tests.app.client import Client, serving
from tests.app.pipelines.conftest import write_pipeline
from tests.app.sample_models import elementwise, write_classifier, write_detector, write_model
from tests.patience import until

TEXT = """
[[step]]
name = "find"
model = "boxes"
input = "picture"

[[step]]
name = "kind"
model = "shades"
crop = "find.box"
"""
OTHER = 'task = "classification"\nlabels = ["west", "east", "south"]\n'


def picture() -> bytes:
    out = io.BytesIO()
    Image.linear_gradient("L").resize((16, 8)).save(out, "PNG")
    return out.getvalue()


def notice(client: Client) -> None:
    """Look until changed files were loaded, and pipelines checked again."""
    for _ in range(6):
        client.plane.watcher.look()
        client.plane.store._loaders.wait()


def ask(client: Client) -> httpx.Response:
    return client.post("/models/scan/infer", content=picture(), headers={"content-type": "image/png"})


def label(client: Client) -> str:
    response = ask(client)
    assert response.status_code == 200, response.text
    return str(response.json()["predictions"]["find"][0]["kind"][0]["label"])


def refusal(client: Client) -> str:
    response = ask(client)
    assert response.status_code == 503, response.text
    return str(response.json()["error"]["message"])


def write(store: Path) -> None:
    write_detector(store)
    write_classifier(store)
    write_pipeline(store, "scan", TEXT)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    write(tmp_path)
    with serving(tmp_path, reload_interval_s=0) as client:
        yield client


def test_a_new_version_is_used_without_loading_the_pipeline_again(client: Client, tmp_path: Path) -> None:
    before = label(client)
    write_classifier(tmp_path, config=OTHER, version=2)
    notice(client)
    assert (before, label(client)) in {("left", "west"), ("right", "east"), ("below", "south")}


def test_a_fixed_version_stays(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "scan" / "pipeline.toml").write_text(TEXT.replace('"shades"', '"shades:1"'))
    write_classifier(tmp_path, config='versions = "all"\n' + OTHER, version=2)
    with serving(tmp_path, reload_interval_s=0) as client:
        label(client)
        shutil.rmtree(tmp_path / "shades" / "1")
        notice(client)
        assert "step 'kind': model 'shades' has no version 1: it serves 2" in refusal(client)


def test_a_model_that_no_longer_fits_is_refused_until_it_does(client: Client, tmp_path: Path) -> None:
    before = label(client)
    shutil.rmtree(tmp_path / "shades")
    write_model(tmp_path, "shades", elementwise("add(@0,1)", "(?,3)f32"))
    notice(client)
    assert "step 'kind': crop: model 'shades' takes no pictures" in refusal(client)
    assert "takes no pictures" in client.get("/models/scan").json()["reason"]
    shutil.rmtree(tmp_path / "shades")
    write_classifier(tmp_path)
    notice(client)
    assert label(client) == before
    assert client.get("/models/scan").json()["reason"] is None


def test_a_pipeline_is_served_as_soon_as_its_models_are_there(tmp_path: Path) -> None:
    write_detector(tmp_path)
    write_pipeline(tmp_path, "scan", TEXT)
    with serving(tmp_path, reload_interval_s=0) as client:
        assert "no model 'shades' in the store;" in refusal(client)  # without the names of other models
        write_classifier(tmp_path)
        notice(client)
        assert label(client)


def test_a_changed_file_of_a_pipeline_is_served(client: Client, tmp_path: Path) -> None:
    label(client)
    write_pipeline(tmp_path, "scan", TEXT.replace('"kind"', '"what"'))
    notice(client)
    assert "what" in ask(client).json()["predictions"]["find"][0]
    write_pipeline(tmp_path, "scan", TEXT.replace('"boxes"', '"nothing"'))
    notice(client)
    assert "what" in ask(client).json()["predictions"]["find"][0]
    assert "no model 'nothing'" in client.get("/models/scan").json()["reason"]


def test_an_unloaded_model_is_named_and_its_memory_is_free(tmp_path: Path) -> None:
    write(tmp_path)
    with serving(tmp_path, model_control="explicit", load_model=("*",)) as client:
        before = label(client)
        model = weakref.ref(client.plane.store.part("shades"))
        assert client.post("/v2/repository/models/shades/unload").status_code == 200
        gc.collect()
        assert model() is None
        assert "step 'kind': model 'shades' is not loaded" in refusal(client)
        assert client.post("/v2/repository/models/shades/load").status_code == 200
        assert label(client) == before


def test_a_pipeline_whose_models_are_not_loaded_is_not_loaded(tmp_path: Path) -> None:
    write(tmp_path)
    with serving(tmp_path, model_control="explicit", load_model=("boxes",)) as client:
        refused = client.post("/v2/repository/models/scan/load")
        assert "step 'kind': model 'shades' is not loaded" in refused.json()["error"]
        for name in ("shades", "scan"):
            assert client.post(f"/v2/repository/models/{name}/load").status_code == 200
        assert label(client)


def test_every_answer_is_of_one_version_while_versions_change(client: Client, tmp_path: Path) -> None:
    old, answers = label(client), list[Any]()

    async def keep_asking() -> None:
        while True:
            response = await client.http.post(
                "/models/scan/infer", content=picture(), headers={"content-type": "image/png"}
            )
            assert response.status_code == 200, response.text
            answers.append(response.json()["predictions"]["find"][0]["kind"][0]["label"])

    async def change() -> None:
        tasks = [asyncio.create_task(keep_asking()) for _ in range(4)]
        for version in range(2, 5):
            write_classifier(tmp_path, config=OTHER if version % 2 == 0 else None, version=version)
            (tmp_path / "shades" / "config.toml").touch()
            await asyncio.to_thread(notice, client)
            seen = len(answers)
            while len(answers) < seen + 4:
                assert not any(task.done() for task in tasks)
                await asyncio.sleep(0.001)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    client.run(change())
    assert set(answers) == {old, {"left": "west", "right": "east", "below": "south"}[old]}
    until(lambda: client.plane.is_quiet)
