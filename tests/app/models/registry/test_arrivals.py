"""Folders that are seen before their files arrive, in every form that a model has."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.app.client import Client
from tests.app.models.registry.test_discovery import is_ready, look, unwatched, write
from tests.engine.onnx_files.models import FLOAT, model, node, onnx, value


def onnx_files(folder: Path, data: str | None = None) -> None:
    """A model that adds 3, its tensors in a file of their own where one is named."""
    weights = {"three": np.full((1, 2), 3, np.float32)}
    shape = ["n", 2]
    proto = model([node("Add", ["x", "three"], ["y"])], [value("x", shape, FLOAT)], [value("y", shape, FLOAT)], weights)
    options = {} if data is None else {"save_as_external_data": True, "location": data, "size_threshold": 0}
    onnx.save_model(proto, str(folder / "model.onnx"), **options)


def answer(client: Client, model: str = "first") -> float | int:
    """Return the model's result for zeros; the status if it does not answer."""
    response = client.infer(model, [[0, 0]], outputs=["out0"])
    return response.json()["outputs"]["out0"]["data"][0] if response.status_code == 200 else response.status_code


def copied(made: Path, folder: Path) -> None:
    for path in sorted(made.iterdir()):
        shutil.copy(path, folder)


def renamed(made: Path, folder: Path) -> None:
    for path in sorted(made.iterdir()):
        shutil.copy(path, folder / f"{path.name}.part")
        os.rename(folder / f"{path.name}.part", folder / path.name)


def pair_files(folder: Path) -> None:
    write(folder.parent, "pair", 3)
    for path in (folder.parent / "pair" / "1").iterdir():
        path.rename(folder / path.name)
    shutil.rmtree(folder.parent / "pair")


FORMS: dict[str, Callable[[Path], None]] = {
    "a pair": pair_files,
    "an ONNX file": onnx_files,
    "an ONNX file and its tensors": lambda folder: onnx_files(folder, "model.onnx.data"),
    "an ONNX file and its tensors under another name": lambda folder: onnx_files(folder, "weights.bin"),
}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    folder.mkdir()
    write(folder, "first", 1)
    return folder


def made(tmp_path: Path, form: str) -> Path:
    folder = tmp_path / "made"
    folder.mkdir()
    FORMS[form](folder)
    return folder


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", [copied, renamed])
@pytest.mark.parametrize("is_late", [False, True])
def test_files_that_arrive_in_an_empty_folder_are_served(
    store: Path, tmp_path: Path, form: str, way: Callable[[Path, Path], None], is_late: bool
) -> None:
    folder = store / "second" / "1"
    if not is_late:
        folder.mkdir(parents=True)
    with unwatched(store) as client:
        look(client)
        folder.mkdir(parents=True, exist_ok=True)
        look(client)
        reason = client.get("/models/second").json()["reason"]
        assert "waiting for files: found none in 1/, expected model.pnnx.param and model.pnnx.bin, or " in reason
        assert is_ready(client) is is_late
        way(made(tmp_path, form), folder)
        look(client)
        assert answer(client, "second") == 3 and is_ready(client)
        served = client.plane.store.version("second")
        look(client)
        assert client.plane.store.version("second") is served  # loaded once


def test_each_file_may_arrive_at_its_own_time(store: Path, tmp_path: Path) -> None:
    files = made(tmp_path, "an ONNX file and its tensors under another name")
    (store / "second").mkdir()
    with unwatched(store) as client:
        look(client)
        assert "waiting for files: expected a folder" in client.get("/models/second").json()["reason"]
        (store / "second" / "1").mkdir()
        look(client)
        for name in ("model.onnx", "weights.bin"):
            assert answer(client, "second") == 503
            shutil.copy(files / name, store / "second" / "1")
            look(client)
        assert answer(client, "second") == 3


def test_a_newer_version_may_be_seen_before_its_files(store: Path, tmp_path: Path) -> None:
    with unwatched(store) as client:
        look(client)
        (store / "first" / "2").mkdir()
        look(client)
        assert answer(client) == 1 and "waiting for files" in client.get("/models/first").json()["reason"]
        copied(made(tmp_path, "an ONNX file"), store / "first" / "2")
        look(client)
        assert answer(client) == 3
        assert client.get("/models/first").json()["reason"] is None


def test_what_lies_beside_a_pair_is_no_part_of_it(store: Path) -> None:
    with unwatched(store) as client:
        look(client)
        served = client.plane.store.version("first")
        (store / "first" / "1" / "notes.txt").write_text("anything")
        look(client)
        assert client.plane.store.version("first") is served
